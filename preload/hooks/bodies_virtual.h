// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_BODIES_VIRTUAL_H_
#define DSTRACE_PRELOAD_HOOKS_BODIES_VIRTUAL_H_

// What to record of the calls on virtual memory: ranges of addresses, physical
// memory behind handles, and the mappings of one to the other. The driver alone
// has them. See Body in call.h.
//
// Out pointers are read after success only: a call with a null one fails.

#include <cstddef>
#include <cstdint>

#include "preload/hooks/bodies_memory.h"
#include "preload/hooks/call.h"

namespace dstrace::hooks {

struct MemCreate : Body {
  static constexpr DeviceKind kKind = DeviceKind::kPhysicalCreate;
  using Handle = CUmemGenericAllocationHandle;
  static void Before(DeviceEvent& event, const Handle*, size_t size,
                     const CUmemAllocationProp* prop,
                     unsigned long long flags) noexcept {
    event.size = size;
    event.flags = flags;
    if (prop == nullptr) return;
    event.device = prop->location.type == kLocationDevice
                       ? prop->location.id
                       : capture::kDeviceHost;
    event.offset = static_cast<uint64_t>(prop->requested_handle_types);
  }
  static void After(DeviceEvent& event, const Handle* handle, size_t,
                    const CUmemAllocationProp*, unsigned long long) noexcept {
    event.handle = *handle;
  }
};
struct MemRelease : Body {
  static constexpr DeviceKind kKind = DeviceKind::kPhysicalRelease;
  static constexpr bool kStampBefore = true;
  static void Before(DeviceEvent& event,
                     CUmemGenericAllocationHandle handle) noexcept {
    event.handle = handle;
  }
};
struct MemMap : Body {
  static constexpr DeviceKind kKind = DeviceKind::kMap;
  static void Before(DeviceEvent& event, CUdeviceptr address, size_t size,
                     size_t offset, CUmemGenericAllocationHandle handle,
                     unsigned long long flags) noexcept {
    event.address = address;
    event.size = size;
    event.offset = offset;
    event.handle = handle;
    event.flags = flags;
  }
};
template <DeviceKind kRangeKind>
struct RangeEnd : Body {
  static constexpr DeviceKind kKind = kRangeKind;
  static constexpr bool kStampBefore = true;
  static void Before(DeviceEvent& event, CUdeviceptr address,
                     size_t size) noexcept {
    event.address = address;
    event.size = size;
  }
};
struct MemUnmap : RangeEnd<DeviceKind::kUnmap> {};
struct MemAddressFree : RangeEnd<DeviceKind::kAddressFree> {};
struct MemAddressReserve : Body {
  static constexpr DeviceKind kKind = DeviceKind::kAddressReserve;
  static void Before(DeviceEvent& event, const CUdeviceptr*, size_t size,
                     size_t, CUdeviceptr, unsigned long long) noexcept {
    event.size = size;
  }
  static void After(DeviceEvent& event, const CUdeviceptr* out, size_t, size_t,
                    CUdeviceptr, unsigned long long) noexcept {
    event.address = *out;
  }
};
// The bytes belong to whoever created them.
struct MemImport : Body {
  static constexpr DeviceKind kKind = DeviceKind::kPhysicalRetain;
  static void After(DeviceEvent& event,
                    const CUmemGenericAllocationHandle* handle, const void*,
                    CUmemAllocationHandleType) noexcept {
    event.handle = *handle;
    event.flags = 1;  // of another process
  }
};
struct MemRetain : Body {
  static constexpr DeviceKind kKind = DeviceKind::kPhysicalRetain;
  static void After(DeviceEvent& event,
                    const CUmemGenericAllocationHandle* handle,
                    const void* address) noexcept {
    event.handle = *handle;
    event.address = Number(address);
  }
};
// A handle without memory of its own; seen so that its release has a partner.
struct MulticastCreate : Body {
  static constexpr DeviceKind kKind = DeviceKind::kPhysicalCreate;
  static void Before(DeviceEvent& event, const CUmemGenericAllocationHandle*,
                     const CUmulticastObjectProp* prop) noexcept {
    event.device = capture::kDeviceHost;
    if (prop != nullptr) event.offset = prop->size;
  }
  static void After(DeviceEvent& event,
                    const CUmemGenericAllocationHandle* handle,
                    const CUmulticastObjectProp*) noexcept {
    event.handle = *handle;
  }
};

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_BODIES_VIRTUAL_H_
