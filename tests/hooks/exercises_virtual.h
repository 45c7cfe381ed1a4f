// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_HOOKS_EXERCISES_VIRTUAL_H_
#define DSTRACE_TESTS_HOOKS_EXERCISES_VIRTUAL_H_

// Virtual memory, arrays, memory of other processes.

#include "tests/hooks/exercises.h"
#include "tests/hooks/exercises_memory.h"

namespace dstrace::hooks::testing {

using Handle = CUmemGenericAllocationHandle;
inline constexpr size_t kPage = size_t{2} << 20;

inline CUmemAllocationProp DeviceProp(int device) {
  CUmemAllocationProp prop{};
  prop.type = 1;
  prop.location = {kLocationDevice, device};
  return prop;
}
inline Handle NewHandle() {
  const CUmemAllocationProp prop = DeviceProp(0);
  Handle handle = 0;
  EXPECT_EQ(cuMemCreate(&handle, kPage, &prop, 0), 0);
  FakeRecorderClear();
  return handle;
}
inline CUdeviceptr NewRange(size_t size) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAddressReserve(&address, size, 0, 0, 0), 0);
  FakeRecorderClear();
  return address;
}

inline void ExerciseMemCreate(const Target& target,
                              int (*create)(Handle*, size_t,
                                            const CUmemAllocationProp*,
                                            unsigned long long)) {
  CUmemAllocationProp prop = DeviceProp(1);
  Handle handle = 0;
  ASSERT_EQ(create(&handle, kPage, &prop, 0), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kPhysicalCreate);
  EXPECT_EQ(event.handle, handle);
  EXPECT_EQ(event.size, kPage);
  EXPECT_EQ(event.device, 1);  // of the properties, not the current one
  EXPECT_EQ(event.offset, 0U) << "cannot be exported";
  EXPECT_EQ(cuMemRelease(handle), 0);
  FakeRecorderClear();

  prop.requested_handle_types = 9;  // a file descriptor, a fabric handle
  ASSERT_EQ(create(&handle, kPage, &prop, 0), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kPhysicalCreate).offset, 9U);

  prop.location.type = 2;  // host
  ASSERT_EQ(create(&handle, kPage, &prop, 0), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kPhysicalCreate).device,
            capture::kDeviceHost);
  EXPECT_EQ(create(&handle, kPage, nullptr, 0), kInvalidValue);
  ExpectFailure(TakeEvent(target, DeviceKind::kPhysicalCreate), kInvalidValue,
                kPage);
}
inline void ExerciseMemRelease(const Target& target, int (*release)(Handle)) {
  const Handle handle = NewHandle();
  ASSERT_EQ(release(handle), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kPhysicalRelease).handle, handle);
  EXPECT_EQ(release(handle), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kPhysicalRelease).result,
            kInvalidValue);
}
inline void ExerciseMemMap(const Target& target,
                           int (*map)(CUdeviceptr, size_t, size_t, Handle,
                                      unsigned long long)) {
  const Handle handle = NewHandle();
  const CUdeviceptr address = NewRange(kPage);
  ASSERT_EQ(map(address, kPage, 0, handle, 0), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kMap);
  EXPECT_EQ(event.address, address);
  EXPECT_EQ(event.size, kPage);
  EXPECT_EQ(event.handle, handle);
  EXPECT_EQ(map(address, kPage, 0, handle, 0), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kMap).result, kInvalidValue);
}
inline void ExerciseMemUnmap(const Target& target,
                             int (*unmap)(CUdeviceptr, size_t)) {
  const CUdeviceptr address = NewRange(2 * kPage);
  ASSERT_EQ(cuMemMap(address, kPage, 0, NewHandle(), 0), 0);
  ASSERT_EQ(cuMemMap(address + kPage, kPage, 0, NewHandle(), 0), 0);
  FakeRecorderClear();
  ASSERT_EQ(unmap(address, 2 * kPage), 0);  // two mappings at once
  const DeviceEvent event = TakeEvent(target, DeviceKind::kUnmap);
  EXPECT_EQ(event.address, address);
  EXPECT_EQ(event.size, 2 * kPage);
  EXPECT_EQ(unmap(address, kPage), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kUnmap).result, kInvalidValue);
}
inline void ExerciseMemAddressReserve(const Target& target,
                                      int (*reserve)(CUdeviceptr*, size_t,
                                                     size_t, CUdeviceptr,
                                                     unsigned long long)) {
  CUdeviceptr address = 0;
  ASSERT_EQ(reserve(&address, kPage, 0, 0, 0), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kAddressReserve);
  EXPECT_EQ(event.address, address);
  EXPECT_EQ(event.size, kPage);
  EXPECT_EQ(reserve(nullptr, kPage, 0, 0, 0), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kAddressReserve).result,
            kInvalidValue);
}
inline void ExerciseMemAddressFree(const Target& target,
                                   int (*free)(CUdeviceptr, size_t)) {
  const CUdeviceptr address = NewRange(kPage);
  ASSERT_EQ(free(address, kPage), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kAddressFree).address, address);
  EXPECT_EQ(free(address, kPage), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kAddressFree).result, kInvalidValue);
}
inline void ExerciseMemImport(const Target& target,
                              int (*import)(Handle*, void*, int)) {
  Handle handle = 0;
  int descriptor = 0;
  ASSERT_EQ(import(&handle, &descriptor, 1), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kPhysicalRetain).handle, handle);
  EXPECT_EQ(import(nullptr, &descriptor, 1), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kPhysicalRetain).result,
            kInvalidValue);
}
inline void ExerciseMemRetain(const Target& target,
                              int (*retain)(Handle*, void*)) {
  const Handle handle = NewHandle();
  const CUdeviceptr address = NewRange(kPage);
  ASSERT_EQ(cuMemMap(address, kPage, 0, handle, 0), 0);
  FakeRecorderClear();
  Handle again = 0;
  ASSERT_EQ(retain(&again, reinterpret_cast<void*>(address)), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kPhysicalRetain);
  EXPECT_EQ(again, handle);
  EXPECT_EQ(event.handle, handle);
  EXPECT_EQ(event.address, address);
  EXPECT_EQ(retain(&again, nullptr), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kPhysicalRetain).result,
            kInvalidValue);
}
inline void ExerciseMulticastCreate(
    const Target& target,
    int (*create)(Handle*, const CUmulticastObjectProp*)) {
  CUmulticastObjectProp prop{};
  prop.size = kPage;
  Handle handle = 0;
  ASSERT_EQ(create(&handle, &prop), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kPhysicalCreate);
  EXPECT_EQ(event.handle, handle);
  EXPECT_EQ(event.size, 0u);  // no memory of its own
  EXPECT_EQ(event.offset, kPage);
  EXPECT_EQ(create(&handle, nullptr), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kPhysicalCreate).result,
            kInvalidValue);
}

// ---- arrays ----
template <class D>
void ExerciseArray(const Target& target, int (*create)(CUarray*, const D*),
                   D desc, size_t size) {
  CUarray array = nullptr;
  ASSERT_EQ(create(&array, &desc), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kArrayCreate);
  EXPECT_EQ(event.handle, Number(array));
  EXPECT_EQ(event.size, size);
  EXPECT_EQ(event.device, 0);
  EXPECT_EQ(create(&array, nullptr), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kArrayCreate).result, kInvalidValue);
}
inline constexpr int kHalf = 0x10;
inline constexpr int kFloat = 0x20;
template <class D>
void ExerciseArrayCreate(const Target& target,
                         int (*create)(CUarray*, const D*)) {
  ExerciseArray(target, create, D{16, 8, kHalf, 2}, 16 * 8 * 2 * 2);
}
template <class D>
void ExerciseArray3DCreate(const Target& target,
                           int (*create)(CUarray*, const D*)) {
  ExerciseArray(target, create, D{16, 8, 2, kFloat, 4, 0}, 16 * 8 * 2 * 4 * 4);
}
inline void ExerciseMipmappedArrayCreate(
    const Target& target,
    int (*create)(CUmipmappedArray*, const CUDA_ARRAY3D_DESCRIPTOR*,
                  unsigned int)) {
  const CUDA_ARRAY3D_DESCRIPTOR desc{16, 8, 0, kFloat, 1, 0};
  CUmipmappedArray array = nullptr;
  ASSERT_EQ(create(&array, &desc, 3), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kArrayCreate);
  EXPECT_EQ(event.handle, Number(array));
  EXPECT_EQ(event.size, (16u * 8 + 8 * 4 + 4 * 2) * 4);
  EXPECT_EQ(create(&array, nullptr, 3), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kArrayCreate).result, kInvalidValue);
}
template <class H>
void ExerciseArrayEnd(const Target& target, int (*destroy)(H), H array) {
  ASSERT_EQ(destroy(array), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kArrayDestroy).handle, Number(array));
  EXPECT_NE(destroy(array), 0);
  EXPECT_NE(TakeEvent(target, DeviceKind::kArrayDestroy).result, 0);
}
template <class H>
void ExerciseArrayDestroy(const Target& target, int (*destroy)(H)) {
  const CUDA_ARRAY_DESCRIPTOR desc{16, 8, kHalf, 2};
  CUarray array = nullptr;
  ASSERT_EQ(cuArrayCreate_v2(&array, &desc), 0);
  FakeRecorderClear();
  ExerciseArrayEnd(target, destroy, reinterpret_cast<H>(array));
}
template <class H>
void ExerciseMipmappedArrayDestroy(const Target& target, int (*destroy)(H)) {
  const CUDA_ARRAY3D_DESCRIPTOR desc{16, 8, 0, kFloat, 1, 0};
  CUmipmappedArray array = nullptr;
  ASSERT_EQ(cuMipmappedArrayCreate(&array, &desc, 1), 0);
  FakeRecorderClear();
  ExerciseArrayEnd(target, destroy, reinterpret_cast<H>(array));
}
template <class F>
void ExerciseFreeArray(const Target& target, F* destroy) {
  ExerciseArrayDestroy(target, destroy);
  EXPECT_EQ(destroy(nullptr), 0);
  ExpectNoEvent(DeviceKind::kArrayDestroy);
}
template <class F>
void ExerciseFreeMipmappedArray(const Target& target, F* destroy) {
  ExerciseMipmappedArrayDestroy(target, destroy);
  EXPECT_EQ(destroy(nullptr), 0);
  ExpectNoEvent(DeviceKind::kArrayDestroy);
}
inline const cudaChannelFormatDesc kFourFloats = {32, 32, 32, 32, 2};
template <class F>
void ExerciseMallocArray(const Target& target, F* create) {
  cudaArray_t array = nullptr;
  ASSERT_EQ(create(&array, &kFourFloats, 16, 8, 0), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kArrayCreate);
  EXPECT_EQ(event.handle, Number(array));
  EXPECT_EQ(event.size, 16u * 8 * 16);
  EXPECT_EQ(create(&array, nullptr, 16, 8, 0), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kArrayCreate).result, kInvalidValue);
}
template <class F>
void ExerciseMalloc3DArray(const Target& target, F* create) {
  cudaArray_t array = nullptr;
  ASSERT_EQ(create(&array, &kFourFloats, cudaExtent{16, 8, 2}, 0), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kArrayCreate);
  EXPECT_EQ(event.handle, Number(array));
  EXPECT_EQ(event.size, 16u * 8 * 2 * 16);
}
template <class F>
void ExerciseMallocMipmappedArray(const Target& target, F* create) {
  cudaMipmappedArray_t array = nullptr;
  ASSERT_EQ(create(&array, &kFourFloats, cudaExtent{16, 8, 0}, 2, 0), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kArrayCreate);
  EXPECT_EQ(event.handle, Number(array));
  EXPECT_EQ(event.size, (16u * 8 + 8 * 4) * 16);
}

// ---- other processes and APIs ----
extern "C" CUresult cuIpcGetMemHandle(CUipcMemHandle* handle,
                                      CUdeviceptr address);
inline CUipcMemHandle ExportedMemory() {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 4096), 0);
  CUipcMemHandle handle{};
  EXPECT_EQ(cuIpcGetMemHandle(&handle, address), 0);
  FakeRecorderClear();
  return handle;
}
template <class P>
void ExerciseIpcOpenMemHandle(const Target& target,
                              int (*open)(P*, CUipcMemHandle, unsigned int)) {
  // 64 bytes by value: all of them have to get through.
  const CUipcMemHandle handle = ExportedMemory();
  P address{};
  ASSERT_EQ(open(&address, handle, 1), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kIpcOpen).address, Number(address));
  EXPECT_EQ(open(&address, CUipcMemHandle{}, 1), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kIpcOpen).result, kInvalidValue);
}
template <class P>
void ExerciseIpcCloseMemHandle(const Target& target, int (*close)(P)) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cuIpcOpenMemHandle_v2(&address, ExportedMemory(), 1), 0);
  FakeRecorderClear();
  P argument{};
  std::memcpy(&argument, &address, sizeof argument);
  ExerciseAnyFree(target, close, argument, DeviceKind::kIpcClose,
                  kInvalidValue);
}
inline void ExerciseImportExternalMemory(
    const Target& target,
    int (*import)(CUexternalMemory*, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC*)) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc{};
  desc.size = kPage;
  CUexternalMemory memory = nullptr;
  ASSERT_EQ(import(&memory, &desc), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kIpcOpen);
  EXPECT_EQ(event.handle, Number(memory));
  EXPECT_EQ(event.size, kPage);
  EXPECT_EQ(import(&memory, nullptr), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kIpcOpen).result, kInvalidValue);
}
inline void ExerciseDestroyExternalMemory(const Target& target,
                                          int (*destroy)(CUexternalMemory)) {
  const CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc{};
  CUexternalMemory memory = nullptr;
  ASSERT_EQ(cuImportExternalMemory(&memory, &desc), 0);
  FakeRecorderClear();
  ASSERT_EQ(destroy(memory), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kIpcClose).handle, Number(memory));
  EXPECT_NE(destroy(memory), 0);
  EXPECT_NE(TakeEvent(target, DeviceKind::kIpcClose).result, 0);
}

}  // namespace dstrace::hooks::testing

#endif  // DSTRACE_TESTS_HOOKS_EXERCISES_VIRTUAL_H_
