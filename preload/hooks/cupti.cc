// SPDX-License-Identifier: Apache-2.0
//
// CUPTI has one set of activity buffers per process: whoever registers last
// gets everybody's records. So the program always wins. Its first CUPTI call
// takes ours down before it goes on, and its buffer callback is wrapped, so
// that a buffer of ours which CUPTI still holds does not reach it.
#include "preload/hooks/cupti.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "preload/capture/cupti_seam.h"
#include "preload/capture/recorder.h"
#include "preload/hooks/export.h"
#include "preload/hooks/hook_id.h"
#include "preload/hooks/libc_functions.h"
#include "preload/hooks/real.h"
#include "preload/runtime/config.h"
#include "preload/runtime/diagnostics.h"
#include "preload/runtime/guard.h"
#include "preload/runtime/text.h"

namespace dstrace::hooks {
namespace {

constexpr int kCuptiUnknownError = 999;
constexpr char kLibrary[] = "libdstrace_cupti.so";

std::atomic<bool> g_started{false};
// The program's first CUPTI function, null while it has called none.
std::atomic<const char*> g_program{nullptr};
std::atomic<const DstraceCuptiClient*> g_client{nullptr};

// Set while CUPTI works for us: what it calls then is not the program.
constinit thread_local bool t_ours __attribute__((tls_model("initial-exec"))) =
    false;

class OurCall {
 public:
  OurCall() noexcept : errno_(errno) { t_ours = true; }
  ~OurCall() {
    t_ours = false;
    errno = errno_;
  }
  OurCall(const OurCall&) = delete;
  OurCall& operator=(const OurCall&) = delete;

 private:
  const int errno_;
};

void RecordTotals(const capture::CuptiTotals* totals) noexcept {
  runtime::Guard guard;
  capture::RecordCupti(*totals);
}
void RecordFact(const char* name, const char* value) noexcept {
  runtime::Guard guard;
  if (capture::IsRecording()) capture::RecordProperty(name, value);
}
void SayLine(const char* text, const char* detail) noexcept {
  runtime::Say(text, detail);
}
void* FindSymbol(void* handle, const char* name) noexcept {
  const auto find = Libc().dlsym;
  return find == nullptr ? nullptr : find(handle, name);
}

constexpr DstraceCuptiHost kHost = {kDstraceCuptiSeam, sizeof(DstraceCuptiHost),
                                    &RecordTotals,     &RecordFact,
                                    &SayLine,          &FindSymbol};

// "/x/libdstrace.so" -> "/x/libdstrace_cupti.so".
using Path = runtime::Text<4096>;
Path LibraryPath() noexcept {
  Path path;
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&kHost), &self) != 0 &&
      self.dli_fname != nullptr) {
    const std::string_view name = self.dli_fname;
    const size_t slash = name.rfind('/');
    if (slash != std::string_view::npos) path << name.substr(0, slash + 1);
  }
  path << kLibrary;
  return path;
}

const DstraceCuptiClient* Load() noexcept {
  const LibcFunctions& libc = Libc();
  if (libc.dlopen == nullptr) return nullptr;
  const Path path = LibraryPath();
  void* library = libc.dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto* start = library == nullptr
                    ? nullptr
                    : reinterpret_cast<DstraceCuptiStart*>(
                          FindSymbol(library, "dstrace_cupti_start"));
  if (start == nullptr) {
    runtime::Say("without CUPTI: cannot load ", path.view());
    RecordFact("cupti", "libdstrace_cupti.so cannot be loaded");
    return nullptr;
  }
  return start(&kHost);
}

const DstraceCuptiClient* Client() noexcept {
  // acquire: pairs with the release in StartCupti().
  return g_client.load(std::memory_order_acquire);
}

void FinishCupti() noexcept {
  const DstraceCuptiClient* client = Client();
  if (client == nullptr) return;
  const OurCall ours;
  client->finish();
}

// Before the program's own call of `function` goes on.
void YieldTo(const char* function) noexcept {
  const char* first = nullptr;
  // relaxed: only who is first matters.
  if (t_ours || g_program.load(std::memory_order_relaxed) != nullptr ||
      !g_program.compare_exchange_strong(first, function,
                                         std::memory_order_relaxed)) {
    return;
  }
  const OurCall ours;
  RecordFact("cupti.program", function);
  const DstraceCuptiClient* client = Client();
  if (client == nullptr) return;
  client->step_aside();
  RecordFact("cupti", "stepped aside for the program");
}

// The arguments as they go on to CUPTI.
template <Hook kHook, class... Args>
void Adapt(Args&...) noexcept {}

template <>
void Adapt<Hook::cuptiActivityRegisterCallbacks>(
    void*& /*requested*/, DstraceCuptiComplete& completed) noexcept {
  const DstraceCuptiClient* client = Client();
  if (client != nullptr && !t_ours) completed = client->complete_for(completed);
}

template <Hook kHook, class... Args>
int Forward(const void* caller, Args... args) noexcept {
  auto* real = reinterpret_cast<int (*)(Args...)>(RealOf(kHook, caller));
  if (real == nullptr) return kCuptiUnknownError;
  YieldTo(Info(kHook).symbol);
  Adapt<kHook>(args...);
  return real(args...);
}

}  // namespace

void StartCupti() noexcept {
  // relaxed: only who is first matters. Plain load first: contexts are few.
  if (!runtime::GetConfig().cupti ||
      g_started.load(std::memory_order_relaxed) ||
      g_started.exchange(true, std::memory_order_relaxed)) {
    return;
  }
  if (g_program.load(std::memory_order_relaxed) != nullptr) {
    RecordFact("cupti", "not started: the program uses CUPTI");
    return;
  }
  const OurCall ours;
  const DstraceCuptiClient* client = Load();
  if (client == nullptr) return;
  // release: pairs with the acquire in Client().
  g_client.store(client, std::memory_order_release);
  // After CUDA's own handler was registered, so before it at exit. An exit
  // without handlers keeps the totals of the last full buffer.
  atexit(&FinishCupti);
}

#define DSTRACE_MORE_ARGS(...) __VA_OPT__(, ) __VA_ARGS__
#define DSTRACE_CUPTI_HOOK(symbol, params, args)              \
  extern "C" [[gnu::visibility(                               \
      "hidden")]] int dstrace_hook_##symbol params noexcept { \
    return Forward<Hook::symbol>(__builtin_return_address(0)  \
                                     DSTRACE_MORE_ARGS args); \
  }                                                           \
  extern "C" DSTRACE_EXPORT __attribute__((                   \
      alias("dstrace_hook_" #symbol))) int symbol params noexcept;
#include "preload/hooks/hook_table.inc"

}  // namespace dstrace::hooks
