// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_FAKES_FAKE_CUPTI_H_
#define DSTRACE_TESTS_FAKES_FAKE_CUPTI_H_

// A libcupti.so.13 without a GPU. Like the real one it has one pair of buffer
// callbacks, fills the current buffer until it is full or flushed, and gives a
// buffer to whoever is registered then. FAKE_CUPTI_VERSION chooses the records
// (default 130001), FAKE_CUPTI_FAIL=1 answers as without a driver.
//
// Thread-safety: thread-safe.

#include <cstddef>
#include <cstdint>

extern "C" {

// As if the driver had done it: a record where MEMORY2 is enabled.
// `operation` 1: allocation, 2: release.
void FakeCuptiMemory(uint32_t operation, uint32_t memory_kind, uint64_t address,
                     uint64_t bytes) noexcept;
void FakeCuptiPool(uint32_t operation) noexcept;
// A record of a kind that nobody knows.
void FakeCuptiUnknown() noexcept;

bool FakeCuptiIsEnabled(uint32_t kind) noexcept;
// The handed-out buffer, or null.
const uint8_t* FakeCuptiCurrentBuffer() noexcept;
// What is registered now.
void* FakeCuptiCompleted() noexcept;
int FakeCuptiFlushes() noexcept;
// Forgets everything, the current buffer too.
void FakeCuptiReset(uint32_t version, bool fail) noexcept;

using FakeCuptiRequested = void (*)(uint8_t**, size_t*, size_t*);
using FakeCuptiComplete = void (*)(void*, uint32_t, uint8_t*, size_t, size_t);

// CUPTI's own.
int cuptiGetVersion(uint32_t* version) noexcept;
int cuptiSubscribe(void** subscriber, void* callback, void* userdata) noexcept;
int cuptiSubscribe_v2(void** subscriber, void* callback, void* userdata,
                      void* params) noexcept;
int cuptiUnsubscribe(void* subscriber) noexcept;
int cuptiActivityRegisterCallbacks(FakeCuptiRequested requested,
                                   FakeCuptiComplete completed) noexcept;
int cuptiActivityEnable(uint32_t kind) noexcept;
int cuptiActivityEnableContext(void* context, uint32_t kind) noexcept;
int cuptiActivityDisable(uint32_t kind) noexcept;
int cuptiActivityFlushAll(uint32_t flags) noexcept;
int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid,
                               uint8_t** record) noexcept;
int cuptiActivityGetNumDroppedRecords(void* context, uint32_t stream,
                                      size_t* dropped) noexcept;
int cuptiFinalize() noexcept;

}  // extern "C"

#endif  // DSTRACE_TESTS_FAKES_FAKE_CUPTI_H_
