// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_RECORD_TENSOR_H_
#define DSTRACE_PRELOAD_CAPTURE_RECORD_TENSOR_H_

// The record of one tensor: the hot path of dstrace, part of the hook that
// torch calls, since each function more is another line of code to fetch.
// Guarantees and errors as in recorder.h.

#include <cstdint>

#include "preload/capture/recorder.h"
#include "preload/capture/session.h"
#include "preload/capture/torch_totals.h"

namespace dstrace::capture {

#ifdef DSTRACE_FAKE_RECORDER

// tests/hooks: the recorder only remembers what it is told.
void RecordTensor(const void* caller, uint64_t address, int64_t size,
                  uint64_t allocated, uint64_t reserved,
                  TorchDevice device) noexcept;

#else

// Type << 8 | index, as the log has it.
inline uint32_t TorchDeviceCode(TorchDevice device) noexcept {
  return static_cast<uint32_t>(static_cast<uint8_t>(device.type)) << 8 |
         static_cast<uint8_t>(device.index);
}

// The first of a batch, or in a file with a limit.
[[nodiscard]] bool WriteTensorSlowly(Session& session, ThreadState& thread,
                                     uint64_t now, uint64_t address,
                                     int64_t size, uint32_t device,
                                     uint32_t stack) noexcept;
DSTRACE_COLD void WriteTorchTotals(Session& session, ThreadState& thread,
                                   uint32_t device, uint64_t allocated,
                                   uint64_t reserved) noexcept;

// `size` > 0: an allocation of that many bytes at `address`; < 0: its free.
// `allocated` and `reserved` are torch's totals after the event, bytes.
// `caller` is the return address of the hook, in the code that reports.
[[gnu::always_inline]] inline void RecordTensor(const void* caller,
                                                uint64_t address, int64_t size,
                                                uint64_t allocated,
                                                uint64_t reserved,
                                                TorchDevice device) noexcept {
  Session& session = Session::Get();
  ThreadState* const thread = session.Enter();
  if (thread == nullptr) return;
  thread->log.PrefetchRecent();
  const uint32_t code = TorchDeviceCode(device);
  // relaxed: written before Enter() found that this process records.
  const auto mode = runtime::Hot().stacks.load(std::memory_order_relaxed);
  const bool has_stack = size > 0 && mode != runtime::StackMode::kNone;
  if (has_stack) thread->chain.Prefetch();
  thread->log.BeginEvent();
  const uint64_t now = TorchTotals::Now(code, thread->log.latest());
  const uint32_t stack = has_stack ? session.Stack(*thread, mode, caller) : 0;
  bool written = true;
  if (__builtin_expect(thread->log.HasRecentRoom(), 1)) {
    thread->log.AddRecent(now, address, size, stack, code);
  } else {
    written =
        WriteTensorSlowly(session, *thread, now, address, size, code, stack);
  }
  if (!TorchTotals::Agree(code, size, allocated, reserved, written)) {
    WriteTorchTotals(session, *thread, code, allocated, reserved);
  }
}

#endif  // DSTRACE_FAKE_RECORDER

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_RECORD_TENSOR_H_
