// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_CLOCK_H_
#define DSTRACE_PRELOAD_RUNTIME_CLOCK_H_

// Nanoseconds. Thread-safe; served by the vDSO, no system call.

#include <time.h>

#include <cstdint>

namespace dstrace::runtime {

inline uint64_t ReadClock(clockid_t clock) noexcept {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(now.tv_nsec);
}

inline uint64_t MonotonicNow() noexcept { return ReadClock(CLOCK_MONOTONIC); }
inline uint64_t RealNow() noexcept { return ReadClock(CLOCK_REALTIME); }

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_CLOCK_H_
