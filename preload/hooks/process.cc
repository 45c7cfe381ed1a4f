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
#include <cstdarg>
#include <cstdlib>

#include "preload/capture/recorder.h"
#include "preload/hooks/deep_bind.h"
#include "preload/hooks/export.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/libc_functions.h"
#include "preload/runtime/guard.h"
#include "preload/runtime/memory.h"

namespace dstrace::hooks {
namespace {

using capture::EndKind;

// The process whose memory this is. A child of vfork() runs in it under
// another pid until it execs or exits: its end is not ours.
std::atomic<pid_t> g_owner{0};

pid_t CurrentPid() noexcept { return static_cast<pid_t>(syscall(SYS_getpid)); }

bool IsOwner() noexcept {
  // relaxed: written when the process begins.
  return CurrentPid() == g_owner.load(std::memory_order_relaxed);
}

void NoteEnd(EndKind kind, int status) noexcept {
  if (!IsOwner()) return;
  runtime::Guard guard;
  if (guard.entered() && capture::IsRecording()) {
    TellDeepBind();
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

void NoteProgram(const char* program) noexcept {
  if (program == nullptr || !IsOwner()) return;
  runtime::Guard guard;
  if (guard.entered() && capture::IsRecording()) {
    capture::RecordProperty("end.exec", program);
  }
}

// `program`: what replaces this one, in the caller's words.
template <class... Args>
int Exec(const char* name, const char* program, Args... args) noexcept {
  auto* next = Next<int(Args...)>(name);
  if (next == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  NoteProgram(program);
  NoteEnd(EndKind::kExec, 0);
  const int result = next(args...);
  const int saved_errno = errno;
  NoteEnd(EndKind::kNone, 0);
  errno = saved_errno;
  return result;
}

// The arguments of execl() and its kin, as the array that execv() takes. In
// the caller's stack if they are few: a child of vfork() must leave no mapping
// behind in its parent.
class ArgumentList {
 public:
  // Reads `rest` up to and with the null that ends the arguments.
  ArgumentList(const char* first, va_list& rest) noexcept {
    const size_t count = Count(first, rest);
    if (count > kFew) {
      bytes_ = count * sizeof(char*);
      arguments_ = static_cast<const char**>(runtime::MapPages(bytes_));
    }
    if (arguments_ == nullptr) return;
    arguments_[0] = first;
    for (size_t i = 1; i < count; ++i) {
      arguments_[i] = va_arg(rest, const char*);
    }
  }
  // Only after an exec that failed.
  ~ArgumentList() {
    const int saved_errno = errno;
    if (arguments_ != few_) runtime::UnmapPages(arguments_, bytes_);
    errno = saved_errno;
  }
  ArgumentList(const ArgumentList&) = delete;
  ArgumentList& operator=(const ArgumentList&) = delete;

  // Null: no memory, and errno says so.
  [[nodiscard]] char* const* get() const noexcept {
    return const_cast<char* const*>(arguments_);
  }

 private:
  static constexpr size_t kFew = 256;

  // The null included.
  static size_t Count(const char* first, va_list& rest) noexcept {
    if (first == nullptr) return 1;
    va_list counted;
    va_copy(counted, rest);
    size_t count = 2;
    while (va_arg(counted, const char*) != nullptr) ++count;
    va_end(counted);
    return count;
  }

  const char* few_[kFew];
  const char** arguments_ = few_;
  size_t bytes_ = 0;
};

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

using dstrace::hooks::ArgumentList;
using dstrace::hooks::Exec;
using dstrace::hooks::Leave;

// Not noexcept: unistd.h does not say that it is, and clang holds us to it.
DSTRACE_EXPORT void _exit(int status) { Leave("_exit", status); }
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
  return Exec("execve", path, path, argv, envp);
}
DSTRACE_EXPORT int execv(const char* path, char* const argv[]) noexcept {
  return Exec("execv", path, path, argv);
}
DSTRACE_EXPORT int execvp(const char* file, char* const argv[]) noexcept {
  return Exec("execvp", file, file, argv);
}
DSTRACE_EXPORT int execvpe(const char* file, char* const argv[],
                           char* const envp[]) noexcept {
  return Exec("execvpe", file, file, argv, envp);
}
DSTRACE_EXPORT int fexecve(int fd, char* const argv[],
                           char* const envp[]) noexcept {
  return Exec("fexecve", "an open file", fd, argv, envp);
}
DSTRACE_EXPORT int execveat(int folder, const char* path, char* const argv[],
                            char* const envp[], int flags) noexcept {
  return Exec("execveat", path, folder, path, argv, envp, flags);
}

DSTRACE_EXPORT int execl(const char* path, const char* first, ...) noexcept {
  va_list rest;
  va_start(rest, first);
  const ArgumentList argv(first, rest);
  va_end(rest);
  return argv.get() == nullptr ? -1 : Exec("execv", path, path, argv.get());
}
DSTRACE_EXPORT int execlp(const char* file, const char* first, ...) noexcept {
  va_list rest;
  va_start(rest, first);
  const ArgumentList argv(first, rest);
  va_end(rest);
  return argv.get() == nullptr ? -1 : Exec("execvp", file, file, argv.get());
}
DSTRACE_EXPORT int execle(const char* path, const char* first, ...) noexcept {
  va_list rest;
  va_start(rest, first);
  const ArgumentList argv(first, rest);
  char* const* envp = va_arg(rest, char* const*);  // it stands after the null
  va_end(rest);
  return argv.get() == nullptr ? -1
                               : Exec("execve", path, path, argv.get(), envp);
}

}  // extern "C"
