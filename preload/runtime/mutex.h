// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_MUTEX_H_
#define DSTRACE_PRELOAD_RUNTIME_MUTEX_H_

// A four-byte lock. pthread_mutex_t is not used because a child of fork() must
// be able to reset a lock that a thread it does not have was holding.
//
// Thread-safe. Not recursive. Not fair. Constant-initialised.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace dstrace::runtime {

class Mutex {
 public:
  constexpr Mutex() noexcept = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() noexcept {
    uint32_t expected = kFree;
    // acquire: pairs with the release in Unlock().
    if (state_.compare_exchange_strong(expected, kHeld,
                                       std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
      return;
    }
    LockSlow();
  }

  void Unlock() noexcept {
    // release: pairs with the acquires in Lock() and LockSlow().
    if (state_.exchange(kFree, std::memory_order_release) == kContended) {
      syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
  }

  // Only in a child of fork(), which has one thread.
  void ResetAfterFork() noexcept {
    state_.store(kFree, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kContended = 2;

  void LockSlow() noexcept {
    // acquire: pairs with the release in Unlock().
    while (state_.exchange(kContended, std::memory_order_acquire) != kFree) {
      syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kContended, nullptr,
              nullptr, 0);
    }
  }

  std::atomic<uint32_t> state_{kFree};
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

#endif  // DSTRACE_PRELOAD_RUNTIME_MUTEX_H_
