// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_FORK_PAGE_H_
#define DSTRACE_PRELOAD_RUNTIME_FORK_PAGE_H_

// Tells a child of fork() from its parent, by the mark on the hot page.
//
// Thread-safe after Arm(). A vfork() child shares the parent's page and may
// only exec, so it is rightly not seen as a new process.

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "preload/runtime/hot_page.h"

namespace dstrace::runtime {

class ForkPage {
 public:
  constexpr ForkPage() noexcept = default;

  // Marks the calling process as the one that Arm() was last called in.
  void Arm() noexcept {
    wiped_ = madvise(&g_hot_page, kHotPageBytes, MADV_WIPEONFORK) == 0;
    pid_ = getpid();
    // relaxed: the only reader that must see the change is a forked child.
    g_hot_page.page.marked.store(true, std::memory_order_relaxed);
    // release: pairs with IsChild()'s acquire. A thread that sees it sees the
    // page marked; else the first events of two threads would look like a fork.
    armed_.store(true, std::memory_order_release);
  }

  // True in a process forked since Arm().
  [[nodiscard]] bool IsChild() const noexcept {
    if (!armed_.load(std::memory_order_acquire)) return false;
    if (__builtin_expect(!wiped_, 0)) return getpid() != pid_;
    return !g_hot_page.page.marked.load(std::memory_order_relaxed);
  }

  // Whether the hot page itself can be trusted in a child.
  [[nodiscard]] bool wipes() const noexcept { return wiped_; }

 private:
  std::atomic<bool> armed_{false};
  bool wiped_ = false;
  pid_t pid_ = 0;
};

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_FORK_PAGE_H_
