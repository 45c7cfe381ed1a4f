// SPDX-License-Identifier: Apache-2.0
//
// The ways out of a process that run no exit handler: the trace says which was
// taken. Each goes on to the next function of that name, as if we were not
// here.

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "preload/capture/recorder.h"
#include "preload/hooks/export.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/libc_functions.h"
#include "preload/runtime/guard.h"

namespace dstrace::hooks {
namespace {

using capture::EndKind;

// The process whose memory this is. A child of vfork() runs in it under
// another pid until it execs or exits: its end is not ours.
std::atomic<pid_t> g_owner{0};

pid_t CurrentPid() noexcept { return static_cast<pid_t>(syscall(SYS_getpid)); }

void NoteEnd(EndKind kind, int status) noexcept {
  // relaxed: written when the process begins.
  if (CurrentPid() != g_owner.load(std::memory_order_relaxed)) return;
  runtime::Guard guard;
  if (guard.entered() && capture::IsRecording()) {
    capture::RecordEnd(kind, status);
  }
}

// Looked up at each use: an end happens once.
template <class F>
F* Next(const char* name) noexcept {
  const LibcFunctions& libc = Libc();
  if (libc.dlsym == nullptr) return nullptr;
  return reinterpret_cast<F*>(libc.dlsym(RTLD_NEXT, name));
}

// No libc to ask: the kernel's own call.
[[noreturn]] void ExitNow(int status) noexcept {
  for (;;) syscall(SYS_exit_group, status);
}

template <class... Args>
int Exec(const char* name, Args... args) noexcept {
  auto* next = Next<int(Args...)>(name);
  if (next == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  NoteEnd(EndKind::kExec, 0);
  return next(args...);
}

[[noreturn]] void Leave(const char* name, int status) noexcept {
  NoteEnd(EndKind::kFastExit, status);
  auto* next = Next<void(int)>(name);
  if (next != nullptr) next(status);
  ExitNow(status);
}

}  // namespace

void AdoptProcess() noexcept {
  g_owner.store(CurrentPid(), std::memory_order_relaxed);
}

}  // namespace dstrace::hooks

extern "C" {

using dstrace::hooks::Exec;
using dstrace::hooks::Leave;

DSTRACE_EXPORT void _exit(int status) noexcept { Leave("_exit", status); }
DSTRACE_EXPORT void _Exit(int status) noexcept { Leave("_Exit", status); }
DSTRACE_EXPORT void quick_exit(int status) noexcept {
  Leave("quick_exit", status);
}

DSTRACE_EXPORT void abort() noexcept {
  using dstrace::hooks::Next;
  dstrace::hooks::NoteEnd(dstrace::capture::EndKind::kAbort, SIGABRT);
  auto* next = Next<void()>("abort");
  if (next != nullptr) next();
  raise(SIGABRT);
  dstrace::hooks::ExitNow(128 + SIGABRT);
}

DSTRACE_EXPORT int execve(const char* path, char* const argv[],
                          char* const envp[]) noexcept {
  return Exec("execve", path, argv, envp);
}
DSTRACE_EXPORT int execv(const char* path, char* const argv[]) noexcept {
  return Exec("execv", path, argv);
}
DSTRACE_EXPORT int execvp(const char* file, char* const argv[]) noexcept {
  return Exec("execvp", file, argv);
}
DSTRACE_EXPORT int execvpe(const char* file, char* const argv[],
                           char* const envp[]) noexcept {
  return Exec("execvpe", file, argv, envp);
}
DSTRACE_EXPORT int fexecve(int fd, char* const argv[],
                           char* const envp[]) noexcept {
  return Exec("fexecve", fd, argv, envp);
}

}  // extern "C"
