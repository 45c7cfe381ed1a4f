// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_CAPTURE_HELD_LOCKS_PRELOAD_RUNTIME_MUTEX_H_
#define DSTRACE_TESTS_CAPTURE_HELD_LOCKS_PRELOAD_RUNTIME_MUTEX_H_

// Stands in for preload/runtime/mutex.h: the same lock, and a door in front of
// all of them. While the door is shut it is as if another thread held every
// lock of ours at once.
//
// Thread-safe.

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace dstrace::runtime {

struct AllLocks {
  static inline std::atomic<bool> shut{false};
  static inline std::atomic<int> waiting{0};
  static inline std::atomic<uint64_t> taken{0};
};

class Mutex {
 public:
  constexpr Mutex() noexcept = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() noexcept {
    // seq_cst throughout: a test has time.
    if (AllLocks::shut) {
      ++AllLocks::waiting;
      while (AllLocks::shut) sched_yield();
      --AllLocks::waiting;
    }
    ++AllLocks::taken;
    while (held_.exchange(true)) sched_yield();
  }
  void Unlock() noexcept { held_ = false; }
  void ResetAfterFork() noexcept { held_ = false; }

 private:
  std::atomic<bool> held_{false};
};

class MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) noexcept : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace dstrace::runtime

#endif  // DSTRACE_TESTS_CAPTURE_HELD_LOCKS_PRELOAD_RUNTIME_MUTEX_H_
