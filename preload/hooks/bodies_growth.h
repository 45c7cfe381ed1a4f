// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_BODIES_GROWTH_H_
#define DSTRACE_PRELOAD_HOOKS_BODIES_GROWTH_H_

// What CUDA takes of the device for itself beside allocations: code that it
// loads lazily, kernels' local memory, streams' channels, mappings of a peer.
// The driver's figure is taken before and after each call that may do so, for
// kernels at their first use only; a DeviceEvent of kind kModuleLoad tells the
// difference, if there is one.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "preload/hooks/bodies_memory.h"
#include "preload/hooks/call.h"
#include "preload/hooks/driver_queries.h"
#include "preload/hooks/first_use.h"
#include "preload/hooks/memory_sampler.h"

namespace dstrace::hooks {

struct Growth : Body {
  static constexpr DeviceKind kKind = DeviceKind::kModuleLoad;
  static bool Skip(const DeviceEvent& event) noexcept {
    return event.size == 0;
  }
};

template <Hook kHook, class Real, class... Args>
int MeasureAround(uint64_t handle, Real* real, Args... args) noexcept {
  DeviceEvent event;
  event.kind = DeviceKind::kModuleLoad;
  event.api = Info(kHook).symbol;
  event.handle = handle;
  GrowthMeter meter;
  {
    runtime::Guard guard;
    meter.Begin();
  }
  const int result = real(args...);
  if (result != 0 && result != kCudaOutOfMemory) return result;
  runtime::Guard guard;
  event.label = t_call.label;
  event.result = result;
  event.device = CurrentDevice();
  if (result == 0) meter.End(event);
  Record<Growth>(event);
  return result;
}

// ---- the first touches of managed memory ----
// The driver takes something for itself then, and room for pages: of more than
// the call touches, on CUDA 13 of all managed memory at the first touch of any.
// So all that was lost is recorded; the analyzer, which knows what managed
// memory is alive, tells the two apart.
struct Memset : Body {
  static constexpr DeviceKind kKind = DeviceKind::kModuleLoad;
  static constexpr uint32_t kMeasured = 16;  // calls

  static bool MayGrow(CUdeviceptr address) noexcept {
    static std::atomic<uint32_t> measured{0};
    // relaxed: set by an earlier call of the program; a counter.
    if (__builtin_expect(!g_has_managed.load(std::memory_order_relaxed), 1) ||
        measured.load(std::memory_order_relaxed) >= kMeasured) {
      return false;
    }
    runtime::Guard guard;
    return CanMeasure() && IsManaged(address) &&
           measured.fetch_add(1, std::memory_order_relaxed) < kMeasured;
  }

  template <Hook kHook, class Real, class T, class... Rest>
  static int Run(const void*, Real* real, CUdeviceptr address, T value,
                 Rest... rest) noexcept {
    if (__builtin_expect(MayGrow(address), 0)) {
      return MeasureAround<kHook>(0, real, address, value, rest...);
    }
    return real(address, value, rest...);
  }
};

struct MemGetInfo : Body {
  static constexpr DeviceKind kKind = DeviceKind::kUnknown;
  template <Hook kHook, class Real>
  static int Run(const void*, Real* real, size_t* free_bytes,
                 size_t* total_bytes) noexcept {
    const int result = real(free_bytes, total_bytes);
    if (result != 0 || free_bytes == nullptr || total_bytes == nullptr) {
      return result;
    }
    runtime::Guard guard;
    SampleAsked(*free_bytes, *total_bytes);
    return result;
  }
};

// ---- at every call ----
struct MayGrow : Body {
  static constexpr DeviceKind kKind = DeviceKind::kModuleLoad;
  template <Hook kHook, class Real, class... Args>
  static int Run(const void*, Real* real, Args... args) noexcept {
    return MeasureAround<kHook>(0, real, args...);
  }
};
struct StreamCreate : MayGrow {};
struct StreamCreateWithPriority : MayGrow {};
struct CtxEnablePeerAccess : MayGrow {};
struct ModuleGetFunction : MayGrow {};

// ---- at the first call for each kernel, module or library ----
template <class T>
constexpr uint64_t UsedCode(T) noexcept {
  return 0;
}
inline uint64_t UsedCode(CUfunction function) noexcept {
  return Number(function);
}
inline uint64_t UsedCode(CUkernel kernel) noexcept { return Number(kernel); }
inline uint64_t UsedCode(CUmodule module) noexcept { return Number(module); }
inline uint64_t UsedCode(CUlibrary library) noexcept { return Number(library); }

// `kStep`: what loads a kernel's code may come before what makes its local
// memory, so each counts its own first uses. Handles are aligned.
template <uint64_t kStep>
struct FirstUse : Body {
  static constexpr DeviceKind kKind = DeviceKind::kModuleLoad;
  template <Hook kHook, class Real, class... Args>
  static int Run(const void*, Real* real, Args... args) noexcept {
    const uint64_t code = (UsedCode(args) | ...);
    uint64_t key = code == 0 ? 0 : code ^ kStep;
    if (__builtin_expect(HasManyContexts(), 0)) {
      runtime::Guard guard;
      key ^= static_cast<uint64_t>(CurrentDevice() + 1) << 56;
    }
    // During a capture the driver must not be asked; the use stays new.
    if (__builtin_expect(CanMeasure() && IsFirstUse(key), 0)) {
      return MeasureAround<kHook>(code, real, args...);
    }
    return real(args...);
  }
};
struct FuncLoad : FirstUse<1> {};
struct FuncGetAttribute : FirstUse<1> {};
struct FuncSetAttribute : FirstUse<1> {};
struct KernelGetFunction : FirstUse<1> {};
struct KernelGetAttribute : FirstUse<1> {};
struct KernelSetAttribute : FirstUse<1> {};
struct LibraryGetModule : FirstUse<1> {};
struct LibraryGetGlobal : FirstUse<1> {};
struct ModuleGetGlobal : FirstUse<1> {};
struct LaunchKernel : FirstUse<2> {};
struct LaunchKernelEx : FirstUse<2> {};
struct LaunchCooperativeKernel : FirstUse<2> {};

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_BODIES_GROWTH_H_
