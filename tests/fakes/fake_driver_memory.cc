// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include "tests/fakes/fake_driver.h"

namespace dstrace::fakes {
namespace {

constexpr uint64_t kPitch = 512;

template <class P>
CUresult AllocateTo(P* out, uint64_t bytes, Use use, uint64_t pool = 0) {
  if (out == nullptr) {
    uint64_t* none = nullptr;
    return Allocate(bytes, use, pool, none);
  }
  uint64_t address = 0;
  const CUresult result = Allocate(bytes, use, pool, &address);
  if (result == kOk) *out = static_cast<P>(address);
  return result;
}

uint64_t Number(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

}  // namespace

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return AllocateTo(dptr, bytesize, Use::kPlain);
}
CUresult cuMemAlloc(CUdeviceptr_v1* dptr, unsigned int bytesize) {
  return AllocateTo(dptr, bytesize, Use::kPlain);
}
CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pitch, size_t width,
                            size_t height, unsigned int) {
  if (pitch == nullptr) return kInvalidValue;
  *pitch = (width + kPitch - 1) / kPitch * kPitch;
  return AllocateTo(dptr, *pitch * height, Use::kPlain);
}
CUresult cuMemAllocPitch(CUdeviceptr_v1* dptr, unsigned int* pitch,
                         unsigned int width, unsigned int height,
                         unsigned int) {
  if (pitch == nullptr) return kInvalidValue;
  *pitch = static_cast<unsigned int>((width + kPitch - 1) / kPitch * kPitch);
  return AllocateTo(dptr, uint64_t{*pitch} * height, Use::kPlain);
}
CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int) {
  return AllocateTo(dptr, bytesize, Use::kManaged);
}
CUresult cuMemFree_v2(CUdeviceptr dptr) { return Release(dptr, false); }
CUresult cuMemFree(CUdeviceptr_v1 dptr) {
  // The old call keeps half of the address; the fake finds the rest.
  State& state = State::Get();
  uint64_t whole = dptr;
  {
    const std::lock_guard lock(state.mutex);
    for (const auto& [address, range] : state.ranges) {
      if (static_cast<CUdeviceptr_v1>(address) == dptr) whole = address;
    }
  }
  return Release(whole, false);
}

// ---- stream-ordered ----
CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream stream) {
  if (AllocateCaptured(stream, bytesize, dptr)) return kOk;
  return AllocateTo(dptr, bytesize, Use::kPool);
}
CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize,
                              CUstream stream) {
  return cuMemAllocAsync(dptr, bytesize, stream);
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize,
                                 CUmemoryPool pool, CUstream stream) {
  if (pool == nullptr) return kInvalidValue;
  if (AllocateCaptured(stream, bytesize, dptr)) return kOk;
  return AllocateTo(dptr, bytesize, Use::kPool, Number(pool));
}
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize,
                                      CUmemoryPool pool, CUstream stream) {
  return cuMemAllocFromPoolAsync(dptr, bytesize, pool, stream);
}
CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream) {
  if (ReleaseCaptured(stream, dptr)) return kOk;
  return dptr == 0 ? kInvalidValue : Release(dptr, true);
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream) {
  return cuMemFreeAsync(dptr, stream);
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* props) {
  if (props == nullptr) return kInvalidValue;
  return CreateObject(0, reinterpret_cast<uint64_t*>(pool));
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return DestroyObject(Number(pool));
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  return pool == nullptr ? kInvalidValue : kOk;
}
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool, void* handle,
                                            CUmemAllocationHandleType,
                                            unsigned long long) {
  if (handle == nullptr) return kInvalidValue;
  return CreateObject(0, reinterpret_cast<uint64_t*>(pool));
}
CUresult cuMemPoolImportPointer(CUdeviceptr* ptr, CUmemoryPool pool,
                                CUmemPoolPtrExportData* data) {
  if (ptr == nullptr || pool == nullptr || data == nullptr) {
    return kInvalidValue;
  }
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  *ptr = state.NewAddress(0, kGranularity);
  return kOk;
}
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  if (pool == nullptr) return kInvalidValue;
  *pool = reinterpret_cast<CUmemoryPool>(0x4000 + uint64_t(device) * 16);
  return kOk;
}
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return cuDeviceGetMemPool(pool, device);
}
CUresult cuMemPoolGetAttribute(CUmemoryPool, int, void* value) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  int device = 0;
  const CUresult result = CurrentDevice(state, &device);
  if (result != kOk) return result;
  *static_cast<uint64_t*>(value) = state.devices[device].pool_reserved;
  return kOk;
}

// ---- touching it ----
CUresult Touch(CUdeviceptr address) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  int device = 0;
  const CUresult result = CurrentDevice(state, &device);
  if (result != kOk) return result;
  const auto found = state.ranges.find(address);
  if (found == state.ranges.end()) return kInvalidValue;
  if (found->second.use != Use::kManaged || state.managed_touched) return kOk;
  if (!state.Take(device, kManagedTouchBytes)) return kOutOfMemory;
  state.managed_touched = true;
  return kOk;
}
// Blocking or not, for either meaning of the default stream.
#define FAKE_MEMSET(name, Value)                                              \
  CUresult name##_v2(CUdeviceptr dptr, Value, size_t) { return Touch(dptr); } \
  CUresult name##_v2_ptds(CUdeviceptr dptr, Value, size_t) {                  \
    return Touch(dptr);                                                       \
  }                                                                           \
  CUresult name##Async(CUdeviceptr dptr, Value, size_t, CUstream) {           \
    return Touch(dptr);                                                       \
  }                                                                           \
  CUresult name##Async_ptsz(CUdeviceptr dptr, Value, size_t, CUstream) {      \
    return Touch(dptr);                                                       \
  }
FAKE_MEMSET(cuMemsetD8, unsigned char)
FAKE_MEMSET(cuMemsetD16, unsigned short)
FAKE_MEMSET(cuMemsetD32, unsigned int)
#undef FAKE_MEMSET

CUresult cuPointerGetAttribute(void* data, int attribute, CUdeviceptr address) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (data == nullptr || attribute != kPointerIsManaged) return kInvalidValue;
  const auto found = state.ranges.find(address);
  if (found == state.ranges.end()) return kInvalidValue;
  *static_cast<unsigned int*>(data) = found->second.use == Use::kManaged;
  return kOk;
}

// ---- pinned host memory: real memory, so that programs can use it ----
CUresult cuMemHostAlloc(void** out, size_t bytesize, unsigned int) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  int device = 0;
  const CUresult result = CurrentDevice(state, &device);
  if (result != kOk) return result;
  if (out == nullptr || bytesize == 0) return kInvalidValue;
  void* memory = mmap(nullptr, bytesize, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return kOutOfMemory;
  *out = memory;
  state.ranges[Number(memory)] = {bytesize, -1, Use::kHost, 0};
  return kOk;
}
CUresult cuMemAllocHost_v2(void** out, size_t bytesize) {
  return cuMemHostAlloc(out, bytesize, 0);
}
CUresult cuMemAllocHost(void** out, unsigned int bytesize) {
  return cuMemHostAlloc(out, bytesize, 0);
}
CUresult cuMemFreeHost(void* pointer) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (!state.initialized) return kNotInitialized;
  const auto found = state.ranges.find(Number(pointer));
  if (found == state.ranges.end() || found->second.use != Use::kHost) {
    return kInvalidValue;
  }
  munmap(pointer, found->second.size);
  state.ranges.erase(found);
  return kOk;
}
CUresult cuMemHostRegister_v2(void* pointer, size_t bytesize, unsigned int) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (!state.initialized) return kNotInitialized;
  if (pointer == nullptr || bytesize == 0) return kInvalidValue;
  if (state.ranges.count(Number(pointer)) != 0) return 712;
  state.ranges[Number(pointer)] = {bytesize, -1, Use::kRegistered, 0};
  return kOk;
}
CUresult cuMemHostRegister(void* pointer, size_t bytesize, unsigned int flags) {
  return cuMemHostRegister_v2(pointer, bytesize, flags);
}
CUresult cuMemHostUnregister(void* pointer) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (!state.initialized) return kNotInitialized;
  const auto found = state.ranges.find(Number(pointer));
  if (found == state.ranges.end() || found->second.use != Use::kRegistered) {
    return 713;
  }
  state.ranges.erase(found);
  return kOk;
}

}  // namespace dstrace::fakes
