// SPDX-License-Identifier: Apache-2.0
//
// torch's caching allocator reports each tensor's allocation and free through
// c10, profiler or not. This is the hottest path of dstrace: the recorder, a
// known pointer, nothing else.

#include <atomic>

#include "preload/capture/record_tensor.h"
#include "preload/capture/recorder.h"
#include "preload/hooks/export.h"
#include "preload/hooks/hook_id.h"
#include "preload/hooks/real.h"
#include "preload/hooks/torch_events.h"
#include "preload/hooks/torch_module.h"
#include "preload/runtime/guard.h"
#include "preload/runtime/hot.h"
#include "preload/runtime/hot_page.h"

namespace dstrace::hooks {
namespace {

using capture::TorchDevice;

// c10::DeviceType::CUDA: the CPU's allocator reports from another library.
constexpr int8_t kTorchCuda = 1;

std::atomic<bool> g_met{false};

// First report of the process: which torch, and which library allocates.
[[gnu::noinline, gnu::cold]] void Meet(const void* caller,
                                       TorchDevice device) noexcept {
  const runtime::KeepErrno keep_errno;
  DescribeTorch(caller);
  if (device.type != kTorchCuda) return;
  LearnTorchAllocator(caller);
  // relaxed: learning twice gives the same answer.
  g_met.store(true, std::memory_order_relaxed);
}

// How torch reports from 1.13 on.
constexpr Hook kReport =
    Hook::_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE;

// torch's own function, where it is known and all has been done that the first
// report calls for: one load from the hot page, which a child of fork() finds
// empty. Else null.
template <Hook kHook>
inline void* QuickReal() noexcept {
  if constexpr (kHook != kReport) return nullptr;
  // acquire: pairs with the release in SlowReal().
  return runtime::Hot().torch_report.load(std::memory_order_acquire);
}

template <Hook kHook>
DSTRACE_COLD void* SlowReal(const void* caller) noexcept {
  void* const real = RealOf(kHook, caller);
  if (kHook == kReport && g_met.load(std::memory_order_relaxed)) {
    runtime::Hot().torch_report.store(real, std::memory_order_release);
  }
  return real;
}

struct ReportMemoryUsage {
  template <Hook kHook, class Total>
  static void Run(const void* caller, void* address, int64_t size,
                  Total allocated, Total reserved,
                  TorchDevice device) noexcept {
    void* real = QuickReal<kHook>();
    if (runtime::QuickGuard guard; guard.entered()) {
      if (__builtin_expect(real == nullptr, 0) &&
          !g_met.load(std::memory_order_relaxed)) {
        Meet(caller, device);
      }
      capture::RecordTensor(caller, reinterpret_cast<uint64_t>(address), size,
                            static_cast<uint64_t>(allocated),
                            static_cast<uint64_t>(reserved), device);
    }
    if (__builtin_expect(real == nullptr, 0)) real = SlowReal<kHook>(caller);
    using Real = void(void*, int64_t, Total, Total, TorchDevice);
    // torch's own profiler listens behind us.
    if (__builtin_expect(real != nullptr, 1)) {
      reinterpret_cast<Real*>(real)(address, size, allocated, reserved, device);
    }
  }
};

struct ReportOutOfMemory {
  template <Hook kHook, class Total>
  static void Run(const void* caller, int64_t size, Total allocated,
                  Total reserved, TorchDevice device) noexcept {
    if (runtime::Guard guard; guard.entered()) {
      capture::RecordTorchOutOfMemory(static_cast<uint64_t>(size),
                                      static_cast<uint64_t>(allocated),
                                      static_cast<uint64_t>(reserved), device);
    }
    using Real = void(int64_t, Total, Total, TorchDevice);
    auto* const real = reinterpret_cast<Real*>(RealOf(kHook, caller));
    if (real != nullptr) real(size, allocated, reserved, device);
  }
};

}  // namespace

#define DSTRACE_MORE_ARGS(...) __VA_OPT__(, ) __VA_ARGS__
#define DSTRACE_TORCH_HOOK(symbol, body, params, args)         \
  extern "C" DSTRACE_HOT [[gnu::visibility(                    \
      "hidden")]] void dstrace_hook_##symbol params noexcept { \
    body::Run<Hook::symbol>(__builtin_return_address(0)        \
                                DSTRACE_MORE_ARGS args);       \
  }                                                            \
  extern "C" DSTRACE_HOT DSTRACE_EXPORT __attribute__((        \
      alias("dstrace_hook_" #symbol))) void symbol params noexcept;
#include "preload/hooks/hook_table.inc"

}  // namespace dstrace::hooks
