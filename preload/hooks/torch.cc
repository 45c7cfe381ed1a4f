// SPDX-License-Identifier: Apache-2.0
//
// torch's caching allocator reports each tensor's allocation and free through
// c10, profiler or not. This is the hottest path of dstrace: a cached pointer,
// the recorder, nothing else.

#include <atomic>

#include "preload/capture/recorder.h"
#include "preload/hooks/export.h"
#include "preload/hooks/hook_id.h"
#include "preload/hooks/real.h"
#include "preload/hooks/torch_events.h"
#include "preload/hooks/torch_module.h"
#include "preload/runtime/guard.h"
#include "preload/runtime/hot.h"

namespace dstrace::hooks {
namespace {

using capture::TorchDevice;

// c10::DeviceType::CUDA: the CPU's allocator reports from another library.
constexpr int8_t kTorchCuda = 1;

std::atomic<bool> g_met{false};

// First report of the process: which torch, and which library allocates.
[[gnu::noinline, gnu::cold]] void Meet(const void* caller,
                                       TorchDevice device) noexcept {
  DescribeTorch(caller);
  if (device.type != kTorchCuda) return;
  LearnTorchAllocator(caller);
  // relaxed: learning twice gives the same answer.
  g_met.store(true, std::memory_order_relaxed);
}

struct ReportMemoryUsage {
  template <class Total>
  static void Record(const void* caller, void* address, int64_t size,
                     Total allocated, Total reserved,
                     TorchDevice device) noexcept {
    runtime::Guard guard;
    if (!guard.entered()) return;
    if (__builtin_expect(!g_met.load(std::memory_order_relaxed), 0)) {
      Meet(caller, device);
    }
    capture::RecordTensor(caller, reinterpret_cast<uint64_t>(address), size,
                          static_cast<uint64_t>(allocated),
                          static_cast<uint64_t>(reserved), device);
  }
};

struct ReportOutOfMemory {
  template <class Total>
  static void Record(const void*, int64_t size, Total allocated, Total reserved,
                     TorchDevice device) noexcept {
    runtime::Guard guard;
    if (!guard.entered()) return;
    capture::RecordTorchOutOfMemory(static_cast<uint64_t>(size),
                                    static_cast<uint64_t>(allocated),
                                    static_cast<uint64_t>(reserved), device);
  }
};

template <Hook kHook, class B, class... Args>
inline void Report(const void* caller, Args... args) noexcept {
  B::Record(caller, args...);
  // torch's own profiler listens behind us.
  auto* real = reinterpret_cast<void (*)(Args...)>(RealOf(kHook, caller));
  if (__builtin_expect(real != nullptr, 1)) real(args...);
}

}  // namespace

#define DSTRACE_MORE_ARGS(...) __VA_OPT__(, ) __VA_ARGS__
#define DSTRACE_TORCH_HOOK(symbol, body, params, args)         \
  extern "C" DSTRACE_HOT [[gnu::visibility(                    \
      "hidden")]] void dstrace_hook_##symbol params noexcept { \
    Report<Hook::symbol, body>(__builtin_return_address(0)     \
                                   DSTRACE_MORE_ARGS args);    \
  }                                                            \
  extern "C" DSTRACE_HOT DSTRACE_EXPORT __attribute__((        \
      alias("dstrace_hook_" #symbol))) void symbol params noexcept;
#include "preload/hooks/hook_table.inc"

}  // namespace dstrace::hooks
