// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory, and memory of other processes.
#include <cstring>

#include "tests/fakes/fake_driver.h"

namespace dstrace::fakes {
namespace {

void DropReference(State& state, uint64_t handle) {
  const auto found = state.physical.find(handle);
  if (found == state.physical.end() || --found->second.references > 0) return;
  state.Give(found->second.device, found->second.size);
  state.physical.erase(found);
}

CUresult NewPhysical(State& state, int device, uint64_t size,
                     CUmemGenericAllocationHandle* handle) {
  if (!state.Take(device, size)) return kOutOfMemory;
  *handle = state.NewHandle();
  state.physical[*handle] = {size, device, 1};
  return kOk;
}

}  // namespace

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (!state.initialized) return kNotInitialized;
  if (handle == nullptr || prop == nullptr || size == 0) return kInvalidValue;
  const bool on_device = prop->location.type == kLocationDevice;
  if (on_device && prop->location.id >= state.device_count) {
    return kInvalidDevice;
  }
  return NewPhysical(state, on_device ? prop->location.id : -1, size, handle);
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (state.physical.count(handle) == 0) return kInvalidValue;
  DropReference(state, handle);
  return kOk;
}
CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t, CUdeviceptr,
                             unsigned long long) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (!state.initialized) return kNotInitialized;
  if (ptr == nullptr || size == 0) return kInvalidValue;
  *ptr = state.NewAddress(0, size);
  state.ranges[*ptr] = {size, -1, Use::kRange, 0};
  return kOk;
}
CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  const auto found = state.ranges.find(ptr);
  if (found == state.ranges.end() || found->second.use != Use::kRange ||
      found->second.size != size) {
    return kInvalidValue;
  }
  state.OldAddress(0, ptr, size);
  state.ranges.erase(found);
  return kOk;
}
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  const auto found = state.physical.find(handle);
  if (found == state.physical.end() || state.mappings.count(ptr) != 0) {
    return kInvalidValue;
  }
  ++found->second.references;
  state.mappings[ptr] = {size, handle};
  return kOk;
}
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  // Whole mappings only, any number of them.
  auto first = state.mappings.lower_bound(ptr);
  auto last = state.mappings.lower_bound(ptr + size);
  if (first == last || first->first != ptr) return kInvalidValue;
  for (auto mapping = first; mapping != last; ++mapping) {
    DropReference(state, mapping->second.handle);
  }
  state.mappings.erase(first, last);
  return kOk;
}
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t, const void* descs, size_t) {
  return ptr == 0 || descs == nullptr ? kInvalidValue : kOk;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                        void* os_handle,
                                        CUmemAllocationHandleType) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (handle == nullptr || os_handle == nullptr) return kInvalidValue;
  return NewPhysical(state, -1, 0, handle);
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                     void* address) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  const auto found = state.mappings.find(reinterpret_cast<uint64_t>(address));
  if (handle == nullptr || found == state.mappings.end()) return kInvalidValue;
  *handle = found->second.handle;
  ++state.physical[*handle].references;
  return kOk;
}
CUresult cuMulticastCreate(CUmemGenericAllocationHandle* handle,
                           const CUmulticastObjectProp* prop) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (handle == nullptr || prop == nullptr) return kInvalidValue;
  return NewPhysical(state, -1, 0, handle);
}

// ---- other processes ----
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  if (handle == nullptr || address == 0) return kInvalidValue;
  std::memcpy(handle->reserved, &address, sizeof address);
  return kOk;
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* ptr, CUipcMemHandle handle,
                               unsigned int) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  uint64_t address = 0;
  std::memcpy(&address, handle.reserved, sizeof address);
  if (ptr == nullptr || address == 0) return kInvalidValue;
  *ptr = state.NewAddress(0, kGranularity);
  state.ranges[*ptr] = {kGranularity, -1, Use::kIpc, 0};
  return kOk;
}
CUresult cuIpcOpenMemHandle(CUdeviceptr* ptr, CUipcMemHandle handle,
                            unsigned int flags) {
  return cuIpcOpenMemHandle_v2(ptr, handle, flags);
}
CUresult cuIpcCloseMemHandle(CUdeviceptr ptr) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  const auto found = state.ranges.find(ptr);
  if (found == state.ranges.end() || found->second.use != Use::kIpc) {
    return kInvalidValue;
  }
  state.OldAddress(0, ptr, found->second.size);
  state.ranges.erase(found);
  return kOk;
}
CUresult cuImportExternalMemory(CUexternalMemory* out,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* desc) {
  if (desc == nullptr) return kInvalidValue;
  return CreateObject(0, reinterpret_cast<uint64_t*>(out));
}
CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
  return DestroyObject(reinterpret_cast<uint64_t>(memory));
}

}  // namespace dstrace::fakes
