// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_MEMORY_SAMPLER_H_
#define DSTRACE_PRELOAD_HOOKS_MEMORY_SAMPLER_H_

// When to ask the driver how much of the device is used. Rarely enough not to
// be noticed: at most once per 2 ms and device, and always after a change of
// 32 MiB or more.
//
// Thread-safety: thread-safe. Call under runtime::Guard. Bytes.

#include <cstdint>

#include "preload/capture/recorder.h"

namespace dstrace::hooks {

// The current device's free and total memory; left alone if not known.
void QueryMemory(uint64_t& free_bytes, uint64_t& total_bytes) noexcept;

// Asks and records now, for the current context's device. Returns the free
// bytes, 0 if not known.
uint64_t SampleNow(capture::SampleReason reason) noexcept;

// After `event` was recorded: a sample if one is due.
void SampleAfter(const capture::DeviceEvent& event) noexcept;

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_MEMORY_SAMPLER_H_
