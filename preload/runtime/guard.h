// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_GUARD_H_
#define DSTRACE_PRELOAD_RUNTIME_GUARD_H_

// Marks the thread as inside dstrace. What dstrace itself calls (dlsym,
// cuMemGetInfo, ...) can come back through a hook; the inner one must only
// forward.
//
// Thread-safety: one flag per thread.

#include <cerrno>

namespace dstrace::runtime {

// What a hook asks about its thread. Together: one line, found by one entry of
// the table of offsets.
struct ThreadLine {
  bool inside;
  void* state;  // capture::Session's
};
// initial-exec: one mov, and no allocation on a thread's first use.
extern constinit thread_local ThreadLine t_line
    __attribute__((tls_model("initial-exec")));

// Without regard to errno, for the hooks of every tensor: where errno lies is
// asked of libc, which costs five cache lines an event. What they call and may
// set it keeps it (KeepErrno).
class QuickGuard {
 public:
  QuickGuard() noexcept : entered_(!t_line.inside) { t_line.inside = true; }
  ~QuickGuard() {
    if (entered_) t_line.inside = false;
  }
  QuickGuard(const QuickGuard&) = delete;
  QuickGuard& operator=(const QuickGuard&) = delete;

  // False: an outer hook of this thread is at work; do not record.
  [[nodiscard]] bool entered() const noexcept { return entered_; }

 private:
  const bool entered_;
};

// The traced program finds errno as it left it.
class KeepErrno {
 public:
  KeepErrno() noexcept : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int saved_;
};

// Both: for all other hooks.
class Guard {
 public:
  [[nodiscard]] bool entered() const noexcept { return quick_.entered(); }

 private:
  const KeepErrno errno_;
  const QuickGuard quick_;
};

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_GUARD_H_
