// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_EVENT_CLOCK_H_
#define DSTRACE_PRELOAD_RUNTIME_EVENT_CLOCK_H_

// CLOCK_MONOTONIC for events, in nanoseconds, from the processor's counter.
//
// clock_gettime is quick in a loop; an event of a training step finds it out of
// the caches: eleven lines in six pages of libc, the loader and the vDSO. Here
// it is one instruction and numbers that lie beside what an event needs anyway.
//
// All threads read the same line (hot_page.h), so times order events across
// threads as the counter does. Every 2^28 ticks (0.1 s) the line is continued:
// the next one begins where the last one stands and is inclined to meet
// CLOCK_MONOTONIC at its end. Off by under a microsecond in between; after a
// pause, a suspend or a migration it begins anew.
//
// Where the counter cannot be used (not invariant, or the kernel does not trust
// it), for the first 10 ms, and in a child of fork() until it begins to record,
// this is clock_gettime.
//
// Guarantee: no system call beyond clock_gettime's, no lock: a thread never
// waits for another. Thread-safe.

#include <x86intrin.h>

#include <atomic>
#include <cstdint>

#include "preload/runtime/hot_page.h"

namespace dstrace::runtime {

enum class ClockOrder : uint8_t {
  // After all loads before it, so after the lock that orders this event and
  // another thread's. The processor waits for them.
  kAfterLoads,
  // Perhaps some hundred instructions early: for those who order their events
  // by other means.
  kNone,
};

// The processor's counter. Only where the processor has the instruction, which
// old virtual ones have not: see StartEventClock().
template <ClockOrder kOrder = ClockOrder::kAfterLoads>
inline uint64_t Ticks() noexcept {
  if constexpr (kOrder == ClockOrder::kNone) return __rdtsc();
  unsigned processor;
  return __rdtscp(&processor);
}

// Ticks that a line is used for, as a power of two.
inline constexpr int kClockHorizonBits = 28;

[[gnu::noinline, gnu::cold]] uint64_t SlowEventNow() noexcept;

template <ClockOrder kOrder = ClockOrder::kAfterLoads>
inline uint64_t EventNow() noexcept {
  const HotPage::Line& hot = Hot();
  // acquire: pairs with the release in PublishLine(); the line of a generation
  // is complete where the generation is seen.
  const uint32_t generation =
      hot.clock_generation.load(std::memory_order_acquire);
  // Without a line nothing says that the processor has the instruction.
  if (__builtin_expect(generation == 0, 0)) return SlowEventNow();
  const ClockLine& line = hot.clock[generation % 2];
  // acquire, each: keeps the second look at the generation behind them. If a
  // later line has overwritten one of them, that look sees a later generation.
  const uint64_t since =
      Ticks<kOrder>() - line.base_ticks.load(std::memory_order_acquire);
  const uint64_t now =
      line.base_ns.load(std::memory_order_acquire) +
      (since * line.scale.load(std::memory_order_acquire) >> 32);
  const uint64_t trouble =
      since >> kClockHorizonBits |
      (hot.clock_generation.load(std::memory_order_relaxed) ^ generation);
  return __builtin_expect(trouble == 0, 1) ? now : SlowEventNow();
}

// Whether the counter may be used is found out here; once per process, before
// the first event. Reads a file of the kernel's.
void StartEventClock() noexcept;

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_EVENT_CLOCK_H_
