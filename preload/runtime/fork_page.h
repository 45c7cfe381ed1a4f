// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_FORK_PAGE_H_
#define DSTRACE_PRELOAD_RUNTIME_FORK_PAGE_H_

// Tells a child of fork() from its parent with one load, whichever way the
// child was made (fork, clone, a libc we do not know): the kernel hands the
// child this page zeroed (MADV_WIPEONFORK, Linux 4.14).
//
// Thread-safe after Arm(). A vfork() child shares the parent's page and may
// only exec, so it is rightly not seen as a new process.

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "preload/runtime/memory.h"

namespace dstrace::runtime {

class ForkPage {
 public:
  constexpr ForkPage() noexcept = default;

  // Marks the calling process as the one that Arm() was last called in.
  void Arm() noexcept {
    auto* page = page_.load(std::memory_order_relaxed);  // only Arm() writes it
    if (page == nullptr) {
      page = static_cast<std::atomic<uint32_t>*>(MapPages(kPageBytes));
      if (page == nullptr) return;
      wiped_ = madvise(page, kPageBytes, MADV_WIPEONFORK) == 0;
    }
    // relaxed: the only reader that must see the change is a forked child.
    page->store(1, std::memory_order_relaxed);
    pid_ = getpid();
    // release: pairs with IsChild()'s acquire. A thread that sees the page sees
    // it marked; else the first events of two threads would look like a fork.
    page_.store(page, std::memory_order_release);
  }

  // True in a process forked since Arm().
  [[nodiscard]] bool IsChild() const noexcept {
    const auto* page = page_.load(std::memory_order_acquire);
    if (__builtin_expect(page == nullptr, 0)) return false;
    if (__builtin_expect(!wiped_, 0)) return getpid() != pid_;
    return page->load(std::memory_order_relaxed) == 0;
  }

 private:
  static constexpr size_t kPageBytes = 4096;
  std::atomic<std::atomic<uint32_t>*> page_{nullptr};
  bool wiped_ = false;
  pid_t pid_ = 0;
};

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_FORK_PAGE_H_
