// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_BODIES_CONTEXT_H_
#define DSTRACE_PRELOAD_HOOKS_BODIES_CONTEXT_H_

// What to record of contexts and of the code loaded into them: device memory
// that no allocation call accounts for, so the driver's own figures are taken
// around each.
//
// `flags` of a context event: 1 if the context came or went with this call, 0
// if only a reference was counted.

#include <cstddef>
#include <cstdint>

#include "preload/hooks/bodies_memory.h"
#include "preload/hooks/call.h"
#include "preload/hooks/driver_queries.h"
#include "preload/hooks/memory_sampler.h"

namespace dstrace::hooks {

// A sample before, where a context of the same device is already current.
inline void BeforeContext(DeviceEvent& event, CUdevice device) noexcept {
  event.device = device;
  if (CurrentDevice() == device) SampleNow(capture::SampleReason::kContext);
}

inline void AfterContext(DeviceEvent& event, CUcontext context) noexcept {
  event.handle = Number(context);
  if (event.flags == 0) return;
  DescribeGpu(event.device);
  const ScopedContext current(context);
  SampleNow(capture::SampleReason::kContext);
}

struct PrimaryCtxRetain : Body {
  static constexpr DeviceKind kKind = DeviceKind::kContextCreate;
  static void Before(DeviceEvent& event, const CUcontext*,
                     CUdevice device) noexcept {
    event.device = device;
    if (PrimaryContextIsActive(device)) return;
    event.flags = 1;
    BeforeContext(event, device);
  }
  static void After(DeviceEvent& event, const CUcontext* out,
                    CUdevice) noexcept {
    AfterContext(event, *out);
  }
};

struct PrimaryCtxEnd : Body {
  static constexpr DeviceKind kKind = DeviceKind::kContextDestroy;
  static constexpr bool kStampBefore = true;
  static void Before(DeviceEvent& event, CUdevice device) noexcept {
    event.device = device;
    event.flags = PrimaryContextIsActive(device) ? 1 : 0;
  }
  static void After(DeviceEvent& event, CUdevice device) noexcept {
    if (PrimaryContextIsActive(device)) event.flags = 0;
  }
};
struct PrimaryCtxRelease : PrimaryCtxEnd {};
struct PrimaryCtxReset : PrimaryCtxEnd {};

struct CtxCreate : Body {
  static constexpr DeviceKind kKind = DeviceKind::kContextCreate;
  static void Before(DeviceEvent& event, const CUcontext*, unsigned int,
                     CUdevice device) noexcept {
    event.flags = 1;
    BeforeContext(event, device);
  }
  template <class... Rest>
  static void After(DeviceEvent& event, const CUcontext* out,
                    const Rest&...) noexcept {
    AfterContext(event, *out);
  }
};
struct CtxCreateWithAffinity : CtxCreate {
  static void Before(DeviceEvent& event, const CUcontext* out,
                     const CUexecAffinityParam*, int, unsigned int flags,
                     CUdevice device) noexcept {
    CtxCreate::Before(event, out, flags, device);
  }
};
struct CtxCreateWithParams : CtxCreate {
  static void Before(DeviceEvent& event, const CUcontext* out,
                     const CUctxCreateParams*, unsigned int flags,
                     CUdevice device) noexcept {
    CtxCreate::Before(event, out, flags, device);
  }
};

struct CtxDestroy : Body {
  static constexpr DeviceKind kKind = DeviceKind::kContextDestroy;
  static constexpr bool kStampBefore = true;
  static void Before(DeviceEvent& event, CUcontext context) noexcept {
    event.handle = Number(context);
    event.device = CurrentDevice();
    event.flags = 1;
  }
};

// A green context is a part of the primary one: no context of its own to ask.
struct GreenCtxCreate : Body {
  static constexpr DeviceKind kKind = DeviceKind::kContextCreate;
  static void After(DeviceEvent& event, const CUgreenCtx* out,
                    CUdevResourceDesc, CUdevice device, unsigned int) noexcept {
    event.handle = Number(*out);
    event.device = device;
    event.flags = 1;
    SampleNow(capture::SampleReason::kContext);
  }
};
struct GreenCtxDestroy : Body {
  static constexpr DeviceKind kKind = DeviceKind::kContextDestroy;
  static constexpr bool kStampBefore = true;
  static void Before(DeviceEvent& event, CUgreenCtx context) noexcept {
    event.handle = Number(context);
    event.flags = 1;
  }
};

// Stack, printf buffer, device heap: taken when set or at the next launch.
struct CtxSetLimit : Body {
  static constexpr DeviceKind kKind = DeviceKind::kLimit;
  static void Before(DeviceEvent& event, CUlimit limit, size_t value) noexcept {
    event.flags = static_cast<uint64_t>(limit);
    event.size = value;
    event.device = CurrentDevice();
  }
};
struct DeviceSetLimit : CtxSetLimit {};

// ---- code ----
// `size`: what the device has less of afterwards. Other threads and processes
// may have had a part in it; lazily loaded code shows nothing here.
struct LoadBody : Body {
  static constexpr DeviceKind kKind = DeviceKind::kModuleLoad;
  template <class H, class... Rest>
  static void Before(DeviceEvent& event, H*, const Rest&...) noexcept {
    QueryMemory(event.free_bytes, event.total_bytes);
  }
  template <class H, class... Rest>
  static void After(DeviceEvent& event, H* out, const Rest&...) noexcept {
    event.handle = Number(*out);
    event.device = CurrentDevice();
    const uint64_t before = event.free_bytes;
    event.free_bytes = event.total_bytes = 0;
    if (before == 0) return;
    const uint64_t after = SampleNow(capture::SampleReason::kModule);
    if (after != 0 && after < before) event.size = before - after;
  }
};
struct ModuleLoad : LoadBody {};
struct ModuleLoadDataEx : LoadBody {};
struct LibraryLoad : LoadBody {};

struct UnloadBody : Body {
  static constexpr DeviceKind kKind = DeviceKind::kModuleUnload;
  static constexpr bool kStampBefore = true;
  template <class H>
  static void Before(DeviceEvent& event, H* module) noexcept {
    event.handle = Number(module);
  }
  template <class H>
  static void After(DeviceEvent&, H*) noexcept {
    SampleNow(capture::SampleReason::kModule);
  }
};
struct ModuleUnload : UnloadBody {};
struct LibraryUnload : UnloadBody {};

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_BODIES_CONTEXT_H_
