// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_GUARD_H_
#define DSTRACE_PRELOAD_RUNTIME_GUARD_H_

// Marks the thread as inside dstrace. What dstrace itself calls (dlsym,
// cuMemGetInfo, ...) can come back through a hook; the inner one must only
// forward.
//
// Thread-safety: one flag per thread. Also keeps errno as it was.

#include <cerrno>

namespace dstrace::runtime {

// initial-exec: one mov, and no allocation on a thread's first use.
extern constinit thread_local bool t_inside
    __attribute__((tls_model("initial-exec")));

class Guard {
 public:
  Guard() noexcept : saved_errno_(errno), entered_(!t_inside) {
    t_inside = true;
  }
  ~Guard() {
    if (entered_) t_inside = false;
    errno = saved_errno_;
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // False: an outer hook of this thread is at work; do not record.
  [[nodiscard]] bool entered() const noexcept { return entered_; }

 private:
  const int saved_errno_;
  const bool entered_;
};

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_GUARD_H_
