// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_RECORD_WITH_LIMIT_H_
#define DSTRACE_PRELOAD_CAPTURE_RECORD_WITH_LIMIT_H_

// The recorder's second half for a file with a limit: each record and its
// change of the tables of what is live happen under one lock.
//
// Thread-safe. For recorder.cc only.

#include <cstdint>

#include "preload/capture/recorder.h"
#include "preload/capture/session.h"
#include "preload/runtime/hot.h"
#include "proto/wire/records.h"

namespace dstrace::capture {

// As in RecordTensor. False: counted as loss.
DSTRACE_COLD bool WriteTensorWithLimit(Session& session, ThreadState& thread,
                                       uint64_t address, int64_t size,
                                       uint32_t device,
                                       uint32_t stack) noexcept;

// `fields.time` is absolute.
void WriteDeviceWithLimit(Session& session, ThreadState& thread,
                          wire::DeviceEventFields& fields,
                          const char* api) noexcept;

void WriteSampleWithLimit(Session& session, ThreadState& thread, int device,
                          uint64_t free_bytes, uint64_t total_bytes,
                          SampleReason reason) noexcept;

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_RECORD_WITH_LIMIT_H_
