// SPDX-License-Identifier: Apache-2.0
//
// The loader's functions: dlsym and dlvsym (their entry is dlsym.S) hand out
// our wrappers where a program or library asks for a CUDA function by name;
// dlclose tells the rest of dstrace that code has gone.

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <string_view>

#include "preload/capture/recorder.h"
#include "preload/hooks/deep_bind.h"
#include "preload/hooks/export.h"
#include "preload/hooks/hook_id.h"
#include "preload/hooks/libc_functions.h"
#include "preload/hooks/real.h"
#include "preload/runtime/fork_gate.h"
#include "preload/runtime/guard.h"

extern "C" {

// Where dlsym.S jumps. Set before its first jump by dstrace_find_symbol.
[[gnu::visibility("hidden")]] decltype(&::dlsym) dstrace_next_dlsym = nullptr;
[[gnu::visibility("hidden")]] decltype(&::dlvsym) dstrace_next_dlvsym = nullptr;

// The dlopen that dlsym.S goes on to.
[[gnu::visibility("hidden")]] decltype(&::dlopen) dstrace_note_open(
    const char* file, int mode) noexcept;

struct DstraceAnswer {
  void* value;
  uint64_t handled;  // 0: let the next dlsym answer
};

[[gnu::visibility("hidden")]] DstraceAnswer dstrace_find_symbol(
    void* handle, const char* name, const char* version,
    const void* caller) noexcept;

}  // extern "C"

namespace dstrace::hooks {
namespace {

constexpr DstraceAnswer kPass = {nullptr, 0};

// The dlsym after ours: another preload's, else libc's. Racing threads write
// the same values.
bool FindNextDlsym() noexcept {
  if (__builtin_expect(dstrace_next_dlsym != nullptr, 1)) return true;
  const LibcFunctions& libc = Libc();
  if (libc.dlsym == nullptr) return false;
  void* next_dlvsym = libc.dlsym(RTLD_NEXT, "dlvsym");
  void* next_dlsym = libc.dlsym(RTLD_NEXT, "dlsym");
  dstrace_next_dlvsym = next_dlvsym != nullptr
                            ? reinterpret_cast<decltype(&::dlvsym)>(next_dlvsym)
                            : libc.dlvsym;
  dstrace_next_dlsym = next_dlsym != nullptr
                           ? reinterpret_cast<decltype(&::dlsym)>(next_dlsym)
                           : libc.dlsym;
  return true;
}

bool MayBeOurs(const char* name) noexcept {
  return (name[0] == 'c' && name[1] == 'u') ||
         (name[0] == 'n' && name[1] == 'c') ||
         (name[0] == '_' && name[1] == 'Z');
}

// `found` came from a library that the caller named. It becomes the real
// function where none is known; where it is another than the one behind our
// wrapper (a second CUDA runtime in the process), the caller keeps it.
void* WrapFound(Hook hook, void* found, const void* caller) noexcept {
  void* real = RealOf(hook, caller);
  if (real == nullptr) real = OfferReal(hook, found);
  // There is one driver: what cuGetProcAddress has told before may lie at
  // another address and is the same function.
  const bool same = real == found || Info(hook).layer == Layer::kDriver;
  return same ? WrapperOf(hook) : found;
}

DstraceAnswer FindOurs(Hook hook, void* handle, const char* version,
                       const void* caller) noexcept {
  const char* symbol = Info(hook).symbol;
  if (handle != RTLD_DEFAULT) {
    void* found = version == nullptr
                      ? dstrace_next_dlsym(handle, symbol)
                      : dstrace_next_dlvsym(handle, symbol, version);
    if (found == nullptr) return {nullptr, 1};  // libc's dlerror() stands
    if (found != WrapperOf(hook)) return {WrapFound(hook, found, caller), 1};
  }
  // The global scope finds our own export. Without us the answer would have
  // been "undefined symbol" unless some library really has it; the failed
  // search has left that message for dlerror().
  if (FindLinked(hook, caller) == nullptr) return {nullptr, 1};
  return handle == RTLD_DEFAULT ? kPass : DstraceAnswer{WrapperOf(hook), 1};
}

// The loader's count of objects unloaded so far.
uint64_t CountUnloads() noexcept {
  uint64_t count = 0;
  const runtime::ForkGate::Visit gate(runtime::ForkGate::Patience::kSome);
  if (!gate.entered()) return 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) noexcept {
        *static_cast<uint64_t*>(result) = info->dlpi_subs;
        return 1;  // the same in every object: the first is enough
      },
      &count);
  return count;
}

std::atomic<uint64_t> g_unloads{0};

// Most calls of dlclose() only drop a reference.
void NoteUnloads() noexcept {
  runtime::Guard guard;
  if (!guard.entered()) return;
  const uint64_t unloads = CountUnloads();
  // relaxed: a count; ForgetUnloaded() and ModulesChanged() order themselves.
  if (g_unloads.exchange(unloads, std::memory_order_relaxed) == unloads) return;
  ForgetUnloaded();
  capture::ModulesChanged();
}

// Of a process without one (glibc before 2.34, without libdl).
void* NoDlopen(const char*, int) noexcept { return nullptr; }

// The dlopen after ours. Racing threads write the same value.
decltype(&::dlopen) NextDlopen() noexcept {
  static std::atomic<decltype(&::dlopen)> next{nullptr};
  // relaxed: the value is a constant of the process.
  auto* real = next.load(std::memory_order_relaxed);
  if (__builtin_expect(real != nullptr, 1)) return real;
  const LibcFunctions& libc = Libc();
  if (libc.dlsym != nullptr) {
    real =
        reinterpret_cast<decltype(&::dlopen)>(libc.dlsym(RTLD_NEXT, "dlopen"));
  }
  if (real == nullptr) real = libc.dlopen;
  if (real == nullptr) return &NoDlopen;
  next.store(real, std::memory_order_relaxed);
  return real;
}

using Dlclose = int (*)(void*);
Dlclose NextDlclose() noexcept {
  static std::atomic<Dlclose> next{nullptr};
  // relaxed: the value is a constant of the process.
  auto real = next.load(std::memory_order_relaxed);
  if (real != nullptr) return real;
  const LibcFunctions& libc = Libc();
  if (libc.dlsym != nullptr) {
    real = reinterpret_cast<Dlclose>(libc.dlsym(RTLD_NEXT, "dlclose"));
  }
  if (real == nullptr) real = libc.dlclose;
  next.store(real, std::memory_order_relaxed);
  return real;
}

}  // namespace
}  // namespace dstrace::hooks

DstraceAnswer dstrace_find_symbol(void* handle, const char* name,
                                  const char* version,
                                  const void* caller) noexcept {
  using namespace dstrace::hooks;  // NOLINT(google-build-using-namespace)
  if (!FindNextDlsym()) return {nullptr, 1};
  // RTLD_NEXT: the caller wants what is below itself, which may be us.
  if (name == nullptr || handle == RTLD_NEXT || !MayBeOurs(name)) return kPass;
  const Hook hook = FindHook(name);
  if (hook == Hook::kCount) return kPass;
  return FindOurs(hook, handle, version, caller);
}

decltype(&::dlopen) dstrace_note_open(const char* file, int mode) noexcept {
  if ((mode & RTLD_DEEPBIND) != 0) dstrace::hooks::NoteDeepBind(file);
  return dstrace::hooks::NextDlopen();
}

extern "C" DSTRACE_EXPORT int dlclose(void* handle) noexcept {
  const auto real = dstrace::hooks::NextDlclose();
  if (real == nullptr) return -1;
  const int result = real(handle);
  if (result == 0) dstrace::hooks::NoteUnloads();
  return result;
}
