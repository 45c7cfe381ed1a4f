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
#include <optional>

#include "preload/hooks/bodies_memory.h"
#include "preload/hooks/call.h"
#include "preload/hooks/driver_queries.h"
#include "preload/hooks/first_use.h"
#include "preload/hooks/memory_sampler.h"
#include "preload/hooks/nvml.h"

namespace dstrace::hooks {

// What NVML says of the device before this thread makes a context on it.
inline constinit thread_local std::optional<uint64_t> t_used_before
    __attribute__((tls_model("initial-exec"))) = std::nullopt;

// Before: the driver is asked where a context of the same device is already
// current, else NVML. A primary context may be current and not be there yet.
inline void BeforeContext(DeviceEvent& event, CUdevice device) noexcept {
  event.device = device;
  t_used_before.reset();
  const bool sampled = CurrentDevice() == device &&
                       SampleNow(capture::SampleReason::kContext) != 0;
  if (!sampled) t_used_before = NvmlUsedBytes(device);
}

// NVML counts otherwise than cuMemGetInfo: how much it grew by is told as a
// cuMemGetInfo answer from before the context.
inline void SampleBefore(CUdevice device) noexcept {
  if (!t_used_before.has_value()) return;
  const std::optional<uint64_t> after = NvmlUsedBytes(device);
  const std::optional<DeviceMemory> now = CurrentMemory();
  if (!after.has_value() || !now.has_value() || *after < *t_used_before) return;
  const uint64_t free_before = now->free_bytes + (*after - *t_used_before);
  if (free_before > now->total_bytes) return;
  capture::RecordMemorySample(device, free_before, now->total_bytes,
                              capture::SampleReason::kContext);
}

inline void AfterContext(DeviceEvent& event, CUcontext context) noexcept {
  event.handle = Number(context);
  if (event.flags == 0) return;
  NoteContext();
  DescribeGpu(event.device);
  const ScopedContext current(context);
  SampleBefore(event.device);
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
  // The next launch of any kernel may take what was set.
  static void Done(int) noexcept { ForgetUses(); }
};
struct DeviceSetLimit : CtxSetLimit {};

// ---- code ----
// Of the load or unload that this thread is in. A load within a load starts it
// again; the inner one is the event.
inline constinit thread_local GrowthMeter t_meter
    __attribute__((tls_model("initial-exec"))) = {};

// `size`: what the device has less of afterwards beyond what was allocated
// meanwhile; free_bytes and total_bytes: what it then has. Lazily loaded code
// shows at its first use, see bodies_growth.h.
struct LoadBody : Body {
  static constexpr DeviceKind kKind = DeviceKind::kModuleLoad;
  template <class H, class... Rest>
  static void Before(DeviceEvent&, H*, const Rest&...) noexcept {
    t_meter.Begin();
  }
  template <class H, class... Rest>
  static void After(DeviceEvent& event, H* out, const Rest&...) noexcept {
    event.handle = Number(*out);
    event.device = CurrentDevice();
    t_meter.End(event);
  }
};
struct ModuleLoad : LoadBody {};
struct ModuleLoadDataEx : LoadBody {};
struct LibraryLoad : LoadBody {};

// `size`: what the device has more of afterwards.
struct UnloadBody : Body {
  static constexpr DeviceKind kKind = DeviceKind::kModuleUnload;
  static constexpr bool kStampBefore = true;
  template <class H>
  static void Before(DeviceEvent& event, H* module) noexcept {
    event.handle = Number(module);
    event.device = CurrentDevice();
    t_meter.Begin();
  }
  template <class H>
  static void After(DeviceEvent& event, H*) noexcept {
    // What was stamped before cannot tell what came of it.
    event.time = 0;
    t_meter.EndOfUnload(event);
  }
};
struct ModuleUnload : UnloadBody {};
struct LibraryUnload : UnloadBody {};

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_BODIES_CONTEXT_H_
