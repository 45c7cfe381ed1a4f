// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_BODIES_MEMORY_H_
#define DSTRACE_PRELOAD_HOOKS_BODIES_MEMORY_H_

// What to record of the calls that hand out and take back memory, driver and
// runtime alike: the two differ in types, not in meaning. See Body in call.h;
// bodies_virtual.h has memory that is mapped.
//
// Out pointers are read after success only: a call with a null one fails.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "preload/hooks/call.h"
#include "preload/hooks/driver_queries.h"

namespace dstrace::hooks {

// Pointers, handles and integers, as the number that the trace holds.
template <class T>
uint64_t Number(T* value) noexcept {
  return reinterpret_cast<uint64_t>(value);
}
template <class T>
requires(!std::is_pointer_v<T>) uint64_t Number(T value)
noexcept { return static_cast<uint64_t>(value); }

// ---- device memory ----
template <DeviceKind kAllocKind>
struct AllocOf : Body {
  static constexpr DeviceKind kKind = kAllocKind;
  template <class P, class S, class... Rest>
  static void Before(DeviceEvent& event, P*, S size, Rest...) noexcept {
    event.size = size;
  }
  template <class P, class S, class... Rest>
  static void After(DeviceEvent& event, P* out, S, Rest...) noexcept {
    event.address = Number(*out);
    event.device = CurrentDevice();
  }
};

struct MemAlloc : AllocOf<DeviceKind::kAlloc> {};
struct Malloc : AllocOf<DeviceKind::kAlloc> {};

// Set once this process has managed memory.
inline std::atomic<bool> g_has_managed{false};

template <class Base>
struct ManagedAlloc : Base {
  template <class P>
  static void Before(DeviceEvent& event, P* out, size_t size,
                     unsigned int flags) noexcept {
    Base::Before(event, out, size);
    event.flags = flags;
  }
  template <class P>
  static void After(DeviceEvent& event, P* out, size_t size,
                    unsigned int) noexcept {
    Base::After(event, out, size);
    // relaxed: a memset of this memory comes later in the program's own order.
    g_has_managed.store(true, std::memory_order_relaxed);
  }
};
struct MemAllocManaged : ManagedAlloc<AllocOf<DeviceKind::kManagedAlloc>> {};
struct MallocManaged : ManagedAlloc<AllocOf<DeviceKind::kManagedAlloc>> {};

// Rows are padded: what is taken is only known afterwards.
struct MemAllocPitch : Body {
  static constexpr DeviceKind kKind = DeviceKind::kAlloc;
  template <class P, class S, class... Rest>
  static void Before(DeviceEvent& event, P*, S*, S width, S height,
                     Rest...) noexcept {
    event.size = static_cast<uint64_t>(width) * height;
  }
  template <class P, class S, class... Rest>
  static void After(DeviceEvent& event, P* out, S* pitch, S, S height,
                    Rest...) noexcept {
    event.address = Number(*out);
    event.size = static_cast<uint64_t>(*pitch) * height;
    event.device = CurrentDevice();
  }
};
struct MallocPitch : MemAllocPitch {};

struct Malloc3D : Body {
  static constexpr DeviceKind kKind = DeviceKind::kAlloc;
  static void Before(DeviceEvent& event, const cudaPitchedPtr*,
                     const cudaExtent& extent) noexcept {
    event.size = extent.width * extent.height * extent.depth;
  }
  static void After(DeviceEvent& event, const cudaPitchedPtr* out,
                    const cudaExtent& extent) noexcept {
    event.address = Number(out->ptr);
    event.size = out->pitch * extent.height * extent.depth;
    event.device = CurrentDevice();
  }
};

template <DeviceKind kFreeKind>
struct FreeOf : Body {
  static constexpr DeviceKind kKind = kFreeKind;
  static constexpr bool kStampBefore = true;
  template <class P>
  static void Before(DeviceEvent& event, P address) noexcept {
    event.address = Number(address);
  }
  static bool Skip(const DeviceEvent& event) noexcept {
    return event.address == 0;
  }
};
struct MemFree : FreeOf<DeviceKind::kFree> {};
struct Free : FreeOf<DeviceKind::kFree> {};

// ---- stream-ordered memory ----
// On a captured stream the call makes a node of the graph and no memory: it is
// a kGraph event then, as by cuGraphAddMemAllocNode.
struct MemAllocAsync : Body {
  static constexpr DeviceKind kKind = DeviceKind::kPoolAlloc;
  static constexpr uint64_t kSame = BitOf(DeviceKind::kGraph);
  template <class P>
  static void Before(DeviceEvent& event, P*, size_t size,
                     CUstream stream) noexcept {
    event.size = size;
    event.stream = Number(stream);
  }
  template <class P>
  static void Before(DeviceEvent& event, P* out, size_t size, CUmemoryPool pool,
                     CUstream stream) noexcept {
    Before(event, out, size, stream);
    event.pool = Number(pool);
  }
  // offset: what the pool holds afterwards, which may be more than is in use.
  template <class P, class... Rest>
  static void After(DeviceEvent& event, P* out, Rest...) noexcept {
    event.address = Number(*out);
    event.device = CurrentDevice();
    if (IsCaptured(reinterpret_cast<CUstream>(event.stream))) {
      event.kind = DeviceKind::kGraph;
      // relaxed: a launch of this graph comes later in the program's order.
      g_graphs_allocate.store(true, std::memory_order_relaxed);
    }
    if (!CanMeasure()) return;
    const CUmemoryPool pool = event.pool == 0
                                  ? CurrentPool()
                                  : reinterpret_cast<CUmemoryPool>(event.pool);
    event.pool = Number(pool);
    event.offset = PoolReservedBytes(pool);
  }
};
struct MemAllocFromPoolAsync : MemAllocAsync {};
struct MallocAsync : MemAllocAsync {};
struct MallocFromPoolAsync : MemAllocAsync {};

struct MemFreeAsync : FreeOf<DeviceKind::kPoolFree> {
  static constexpr uint64_t kSame = BitOf(DeviceKind::kGraph);
  template <class P>
  static void Before(DeviceEvent& event, P address, CUstream stream) noexcept {
    event.address = Number(address);
    event.stream = Number(stream);
  }
  template <class P>
  static void After(DeviceEvent& event, P, CUstream stream) noexcept {
    if (IsCaptured(stream)) event.kind = DeviceKind::kGraph;
  }
};
struct FreeAsync : MemFreeAsync {};

// ---- pools ----
struct MemPoolCreate : Body {
  static constexpr DeviceKind kKind = DeviceKind::kPoolCreate;
  static void After(DeviceEvent& event, const CUmemoryPool* pool,
                    const CUmemPoolProps* props) noexcept {
    event.pool = Number(*pool);
    event.device = props->location.type == kLocationDevice
                       ? props->location.id
                       : capture::kDeviceHost;
  }
};
// flags 1: memory of another process.
struct MemPoolImport : Body {
  static constexpr DeviceKind kKind = DeviceKind::kPoolCreate;
  template <class... Rest>
  static void After(DeviceEvent& event, const CUmemoryPool* pool,
                    Rest...) noexcept {
    event.pool = Number(*pool);
    event.flags = 1;
  }
};
struct MemPoolDestroy : Body {
  static constexpr DeviceKind kKind = DeviceKind::kPoolDestroy;
  static constexpr bool kStampBefore = true;
  static void Before(DeviceEvent& event, CUmemoryPool pool) noexcept {
    event.pool = Number(pool);
  }
};
// size: what was to be kept; offset: what the pool holds afterwards.
struct MemPoolTrimTo : Body {
  static constexpr DeviceKind kKind = DeviceKind::kPoolTrim;
  static void Before(DeviceEvent& event, CUmemoryPool pool,
                     size_t keep) noexcept {
    event.pool = Number(pool);
    event.size = keep;
  }
  static void After(DeviceEvent& event, CUmemoryPool pool, size_t) noexcept {
    event.offset = PoolReservedBytes(pool);
  }
};
struct MemPoolImportPointer : Body {
  static constexpr DeviceKind kKind = DeviceKind::kIpcOpen;
  template <class P, class E>
  static void After(DeviceEvent& event, P* out, CUmemoryPool pool,
                    E*) noexcept {
    event.address = Number(*out);
    event.pool = Number(pool);
  }
};

// ---- pinned host memory ----
template <DeviceKind kHostKind>
struct HostMemory : Body {
  static constexpr DeviceKind kKind = kHostKind;
  template <class S>
  static void Before(DeviceEvent& event, void*, S size,
                     unsigned int flags = 0) noexcept {
    event.size = size;
    event.flags = flags;
    event.device = capture::kDeviceHost;
  }
};
struct MemHostAlloc : HostMemory<DeviceKind::kHostAlloc> {
  template <class... Rest>
  static void After(DeviceEvent& event, void** out, Rest...) noexcept {
    event.address = Number(*out);
  }
};
struct MemAllocHost : MemHostAlloc {};
struct MallocHost : MemHostAlloc {};
struct HostAlloc : MemHostAlloc {};
struct MemHostRegister : HostMemory<DeviceKind::kHostRegister> {
  template <class... Rest>
  static void After(DeviceEvent& event, void* address, Rest...) noexcept {
    event.address = Number(address);
  }
};
struct HostRegister : MemHostRegister {};

template <DeviceKind kHostKind>
struct HostEnd : FreeOf<kHostKind> {
  static void Before(DeviceEvent& event, void* address) noexcept {
    event.address = Number(address);
    event.device = capture::kDeviceHost;
  }
};
struct MemFreeHost : HostEnd<DeviceKind::kHostFree> {};
struct FreeHost : HostEnd<DeviceKind::kHostFree> {};
struct MemHostUnregister : HostEnd<DeviceKind::kHostUnregister> {};
struct HostUnregister : HostEnd<DeviceKind::kHostUnregister> {};

// ---- memory of other processes and other APIs ----
struct IpcOpenMemHandle : Body {
  static constexpr DeviceKind kKind = DeviceKind::kIpcOpen;
  template <class P>
  static void After(DeviceEvent& event, P* out, const CUipcMemHandle&,
                    unsigned int flags) noexcept {
    event.address = Number(*out);
    event.flags = flags;
    event.device = CurrentDevice();
  }
};
struct IpcCloseMemHandle : FreeOf<DeviceKind::kIpcClose> {};
struct ImportExternalMemory : Body {
  static constexpr DeviceKind kKind = DeviceKind::kIpcOpen;
  static void Before(DeviceEvent& event, const CUexternalMemory*,
                     const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* desc) noexcept {
    if (desc != nullptr) event.size = desc->size;
  }
  static void After(DeviceEvent& event, const CUexternalMemory* out,
                    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC*) noexcept {
    event.handle = Number(*out);
    event.device = CurrentDevice();
  }
};
struct DestroyExternalMemory : Body {
  static constexpr DeviceKind kKind = DeviceKind::kIpcClose;
  static constexpr bool kStampBefore = true;
  static void Before(DeviceEvent& event, CUexternalMemory memory) noexcept {
    event.handle = Number(memory);
  }
};

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_BODIES_MEMORY_H_
