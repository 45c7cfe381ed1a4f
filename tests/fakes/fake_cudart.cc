// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/fake_cudart.h"

#define FAKE_EXPORT __attribute__((visibility("default")))

namespace dstrace::fakes {
namespace {

using D = Driver;

CUdeviceptr Address(void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}
CUdeviceptr* Out(void** pointer) {
  return reinterpret_cast<CUdeviceptr*>(pointer);
}

CUDA_ARRAY3D_DESCRIPTOR Describe(const cudaChannelFormatDesc& desc,
                                 const cudaExtent& extent, unsigned int flags) {
  const int bits = desc.x != 0 ? desc.x : 8;
  const int format = bits == 8 ? 0x01 : bits == 16 ? 0x02 : 0x03;
  const auto channels =
      static_cast<unsigned int>((desc.x + desc.y + desc.z + desc.w) / bits);
  return {extent.width, extent.height, extent.depth, format, channels, flags};
}

constexpr cudaError_t kInvalid = 1;

}  // namespace

// ---- memory ----
cudaError_t cudaMalloc(void** out, size_t size) {
  return out == nullptr ? kInvalid : Do(&D::cuMemAlloc_v2, Out(out), size);
}
cudaError_t cudaMallocManaged(void** out, size_t size, unsigned int flags) {
  return Do(&D::cuMemAllocManaged, Out(out), size, flags);
}
cudaError_t cudaMallocPitch(void** out, size_t* pitch, size_t width,
                            size_t height) {
  return Do(&D::cuMemAllocPitch_v2, Out(out), pitch, width, height, 4u);
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* out, cudaExtent extent) {
  if (out == nullptr) return kInvalid;
  out->xsize = extent.width;
  out->ysize = extent.height;
  return Do(&D::cuMemAllocPitch_v2, Out(&out->ptr), &out->pitch, extent.width,
            extent.height * extent.depth, 4u);
}
// Like the real one, a free of null only makes the context.
cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return Ready();
  return Do(&D::cuMemFree_v2, Address(pointer));
}
cudaError_t cudaMallocAsync(void** out, size_t size, cudaStream_t stream) {
  return Do(&D::cuMemAllocAsync, Out(out), size, stream);
}
cudaError_t cudaMallocAsync_ptsz(void** out, size_t size, cudaStream_t stream) {
  return Do(&D::cuMemAllocAsync_ptsz, Out(out), size, stream);
}
cudaError_t cudaMallocFromPoolAsync(void** out, size_t size, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return Do(&D::cuMemAllocFromPoolAsync, Out(out), size, pool, stream);
}
cudaError_t cudaMallocFromPoolAsync_ptsz(void** out, size_t size,
                                         cudaMemPool_t pool,
                                         cudaStream_t stream) {
  return Do(&D::cuMemAllocFromPoolAsync_ptsz, Out(out), size, pool, stream);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return Do(&D::cuMemFreeAsync, Address(pointer), stream);
}
cudaError_t cudaFreeAsync_ptsz(void* pointer, cudaStream_t stream) {
  return Do(&D::cuMemFreeAsync_ptsz, Address(pointer), stream);
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool,
                              const cudaMemPoolProps* props) {
  return Do(&D::cuMemPoolCreate, pool, props);
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return Do(&D::cuMemPoolDestroy, pool);
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  return Do(&D::cuMemPoolTrimTo, pool, keep);
}
cudaError_t cudaMemPoolImportFromShareableHandle(
    cudaMemPool_t* pool, void* handle, cudaMemAllocationHandleType type,
    unsigned int flags) {
  return Do(&D::cuMemPoolImportFromShareableHandle, pool, handle, type,
            static_cast<unsigned long long>(flags));
}
cudaError_t cudaMemPoolImportPointer(void** out, cudaMemPool_t pool,
                                     cudaMemPoolPtrExportData* data) {
  return Do(&D::cuMemPoolImportPointer, Out(out), pool,
            reinterpret_cast<CUmemPoolPtrExportData*>(data));
}

// ---- pinned host memory ----
cudaError_t cudaMallocHost(void** out, size_t size) {
  return Do(&D::cuMemAllocHost_v2, out, size);
}
cudaError_t cudaHostAlloc(void** out, size_t size, unsigned int flags) {
  return Do(&D::cuMemHostAlloc, out, size, flags);
}
cudaError_t cudaFreeHost(void* pointer) {
  return pointer == nullptr ? Ready() : Do(&D::cuMemFreeHost, pointer);
}
cudaError_t cudaHostRegister(void* pointer, size_t size, unsigned int flags) {
  return Do(&D::cuMemHostRegister_v2, pointer, size, flags);
}
cudaError_t cudaHostUnregister(void* pointer) {
  return Do(&D::cuMemHostUnregister, pointer);
}

// ---- arrays ----
cudaError_t cudaMalloc3DArray(cudaArray_t* out,
                              const cudaChannelFormatDesc* desc,
                              cudaExtent extent, unsigned int flags) {
  if (desc == nullptr) return kInvalid;
  const CUDA_ARRAY3D_DESCRIPTOR array = Describe(*desc, extent, flags);
  return Do(&D::cuArray3DCreate_v2, reinterpret_cast<CUarray*>(out), &array);
}
cudaError_t cudaMallocArray(cudaArray_t* out, const cudaChannelFormatDesc* desc,
                            size_t width, size_t height, unsigned int flags) {
  return cudaMalloc3DArray(out, desc, {width, height, 0}, flags);
}
cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t* out,
                                     const cudaChannelFormatDesc* desc,
                                     cudaExtent extent, unsigned int levels,
                                     unsigned int flags) {
  if (desc == nullptr) return kInvalid;
  const CUDA_ARRAY3D_DESCRIPTOR array = Describe(*desc, extent, flags);
  return Do(&D::cuMipmappedArrayCreate,
            reinterpret_cast<CUmipmappedArray*>(out), &array, levels);
}
cudaError_t cudaFreeArray(cudaArray_t array) {
  if (array == nullptr) return 0;
  return Do(&D::cuArrayDestroy, reinterpret_cast<CUarray>(array));
}
cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t array) {
  if (array == nullptr) return 0;
  return Do(&D::cuMipmappedArrayDestroy,
            reinterpret_cast<CUmipmappedArray>(array));
}

// ---- other processes ----
cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t handle,
                                 unsigned int flags) {
  return Do(&D::cuIpcOpenMemHandle_v2, Out(out), handle, flags);
}
cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  return Do(&D::cuIpcCloseMemHandle, Address(pointer));
}
cudaError_t cudaImportExternalMemory(cudaExternalMemory_t* out,
                                     const cudaExternalMemoryHandleDesc* desc) {
  return Do(&D::cuImportExternalMemory, out, desc);
}
cudaError_t cudaDestroyExternalMemory(cudaExternalMemory_t memory) {
  return Do(&D::cuDestroyExternalMemory, memory);
}

// ---- contexts and code ----
cudaError_t cudaSetDevice(int device) {
  const int before = ThreadDevice();
  ThreadDevice() = device;
  const cudaError_t result = Ready();
  if (result != 0) ThreadDevice() = before;
  return result;
}
cudaError_t cudaInitDevice(int device, unsigned int, unsigned int) {
  CUcontext context = nullptr;
  const cudaError_t result = Ready();
  return result != 0 ? result
                     : g_driver.cuDevicePrimaryCtxRetain(&context, device);
}
cudaError_t cudaDeviceReset() {
  return Do(&D::cuDevicePrimaryCtxReset_v2, ThreadDevice());
}
cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return Do(&D::cuCtxSetLimit, limit, value);
}
cudaError_t cudaThreadExit() { return cudaDeviceReset(); }
cudaError_t cudaThreadSetLimit(cudaLimit limit, size_t value) {
  return cudaDeviceSetLimit(limit, value);
}
cudaError_t cudaLibraryLoadData(cudaLibrary_t* out, const void* code,
                                cudaJitOption* options, void** values,
                                unsigned int count,
                                cudaLibraryOption* library_options,
                                void** library_values,
                                unsigned int library_count) {
  return Do(&D::cuLibraryLoadData, out, code, options, values, count,
            library_options, library_values, library_count);
}
cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* out, const char* path,
                                    cudaJitOption* options, void** values,
                                    unsigned int count,
                                    cudaLibraryOption* library_options,
                                    void** library_values,
                                    unsigned int library_count) {
  return Do(&D::cuLibraryLoadFromFile, out, path, options, values, count,
            library_options, library_values, library_count);
}
cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
  return Do(&D::cuLibraryUnload, library);
}

}  // namespace dstrace::fakes

namespace dstrace::fakes::exported {

#define DSTRACE_RUNTIME_HOOK(symbol, body, params, args) \
  extern "C" FAKE_EXPORT cudaError_t symbol params {     \
    return ::dstrace::fakes::symbol args;                \
  }
#include "preload/hooks/hook_table.inc"

}  // namespace dstrace::fakes::exported
