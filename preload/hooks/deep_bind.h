// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_DEEP_BIND_H_
#define DSTRACE_PRELOAD_HOOKS_DEEP_BIND_H_

// Libraries opened with RTLD_DEEPBIND. They find a function among themselves
// and what they are linked with before they look at a preload, and so reach
// CUDA past us. That cannot be prevented without changing what the program
// asked for; it can be said. Which of a library's functions are bound past us
// is read from its relocated slots; it counts as loss (bypassed), with names.
//
// Thread-safety: thread-safe, no lock.

#include <atomic>

namespace dstrace::hooks {

// A library is about to be opened so.
void NoteDeepBind(const char* file) noexcept;

extern std::atomic<bool> g_deep_bind_untold;
void TellDeepBindSlow(bool at_end) noexcept;

// Tells of those opened since the last call, if a log is open; on stderr if
// there is none by the end. The loader has to have finished with them: from
// another call than dlopen.
inline void TellDeepBind(bool at_end = false) noexcept {
  // relaxed: seen late is told late.
  if (__builtin_expect(g_deep_bind_untold.load(std::memory_order_relaxed), 0)) {
    TellDeepBindSlow(at_end);
  }
}

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_DEEP_BIND_H_
