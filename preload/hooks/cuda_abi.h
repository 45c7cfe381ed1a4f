// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_CUDA_ABI_H_
#define DSTRACE_PRELOAD_HOOKS_CUDA_ABI_H_

// The part of CUDA's and NCCL's binary interface that the hooks touch, so that
// dstrace builds where no CUDA is installed and one library serves CUDA 11.8 to
// 13.x. tests/hooks/cuda_abi_check.cc compares each declaration with the real
// headers where they are found.
//
// Enums are plain integers (same size, and a newer CUDA may add values).
// Structs that the hooks only pass on are incomplete.

#include <cstddef>
#include <cstdint>

namespace dstrace::hooks {

// ---- driver ----
using CUresult = int;
inline constexpr CUresult kCudaSuccess = 0;
inline constexpr CUresult kCudaOutOfMemory = 2;
inline constexpr CUresult kCudaNotFound = 500;

using CUdevice = int;
using CUdeviceptr = unsigned long long;  // NOLINT(runtime/int): as in cuda.h
using CUdeviceptr_v1 = unsigned int;
using CUmemGenericAllocationHandle = unsigned long long;

using CUcontext = struct CUctx_st*;
using CUgreenCtx = struct CUgreenCtx_st*;
using CUdevResourceDesc = struct CUdevResourceDesc_st*;
using CUmodule = struct CUmod_st*;
using CUlibrary = struct CUlib_st*;
using CUfunction = struct CUfunc_st*;
using CUkernel = struct CUkern_st*;
using CUstream = struct CUstream_st*;
using CUarray = struct CUarray_st*;
using CUmipmappedArray = struct CUmipmappedArray_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUexternalMemory = struct CUextMemory_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUgraphNode = struct CUgraphNode_st*;

using CUlimit = int;
using CUfunction_attribute = int;
using CUjit_option = int;
using CUlibraryOption = int;
using CUmemAllocationHandleType = int;
using CUstreamCaptureMode = int;
using CUdriverProcAddressQueryResult = int;

struct CUctxCreateParams;
struct CUlaunchConfig;
struct CUexecAffinityParam;
struct CUgraphEdgeData;
struct CUDA_GRAPH_INSTANTIATE_PARAMS;
struct CUmemPoolPtrExportData;

struct CUipcMemHandle {
  char reserved[64];
};

struct CUuuid {
  unsigned char bytes[16];
};

struct CUmemLocation {
  int type;
  int id;
};
inline constexpr int kLocationDevice = 1;

struct CUmemAllocationProp {
  int type;
  int requested_handle_types;
  CUmemLocation location;
  void* win32_handle_meta_data;
  unsigned char alloc_flags[8];
};

struct CUmemPoolProps {
  int alloc_type;
  int handle_types;
  CUmemLocation location;
  void* win32_security_attributes;
  size_t max_size;
  unsigned char reserved[56];
};

struct CUmulticastObjectProp {
  unsigned int num_devices;
  size_t size;
  unsigned long long handle_types;
  unsigned long long flags;
};

struct CUDA_ARRAY_DESCRIPTOR {
  size_t width;
  size_t height;
  int format;
  unsigned int channels;
};

struct CUDA_ARRAY_DESCRIPTOR_v1 {
  unsigned int width;
  unsigned int height;
  int format;
  unsigned int channels;
};

struct CUDA_ARRAY3D_DESCRIPTOR {
  size_t width;
  size_t height;
  size_t depth;
  int format;
  unsigned int channels;
  unsigned int flags;
};

struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
  unsigned int width;
  unsigned int height;
  unsigned int depth;
  int format;
  unsigned int channels;
  unsigned int flags;
};

struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
  int type;
  union {
    int fd;
    struct {
      void* handle;
      const void* name;
    } win32;
  } handle;
  unsigned long long size;
  unsigned int flags;
  unsigned int reserved[16];
};

struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps pool_props;
  const void* access_descs;
  size_t access_desc_count;
  size_t bytesize;
  CUdeviceptr dptr;
};

inline constexpr int kGraphMemReservedCurrent = 2;
inline constexpr int kPointerIsManaged = 8;
inline constexpr int kGraphNodeMemAlloc = 10;
inline constexpr int kGraphNodeMemFree = 11;
struct CUgraphNodeParams {
  int type;
  int reserved0[3];
  union {
    long long reserved1[29];
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    CUdeviceptr free_dptr;
  };
  long long reserved2;
};

// CUmemPool_attribute.
inline constexpr int kPoolReservedCurrent = 5;
inline constexpr int kPoolUsedCurrent = 7;

// CUdriverProcAddress_flags.
inline constexpr uint64_t kProcAddressDefault = 0;
inline constexpr uint64_t kProcAddressLegacyStream = 1;
inline constexpr uint64_t kProcAddressPerThreadStream = 2;

// ---- runtime ----
using cudaError_t = int;
inline constexpr cudaError_t kCudaErrorUnknown = 999;

using cudaStream_t = CUstream;
using cudaEvent_t = struct CUevent_st*;
using cudaArray_t = struct cudaArray*;
using cudaMipmappedArray_t = struct cudaMipmappedArray*;
using cudaMemPool_t = CUmemoryPool;
using cudaExternalMemory_t = CUexternalMemory;
using cudaGraph_t = CUgraph;
using cudaGraphExec_t = CUgraphExec;
using cudaGraphNode_t = CUgraphNode;
using cudaLibrary_t = CUlibrary;

using cudaLimit = int;
using cudaJitOption = int;
using cudaLibraryOption = int;
using cudaMemAllocationHandleType = int;
using cudaStreamCaptureMode = int;
using cudaDriverEntryPointQueryResult = int;

struct cudaGraphInstantiateParams;
struct cudaGraphNodeParams;
struct cudaGraphEdgeData;
struct cudaMemPoolPtrExportData;

using cudaMemPoolProps = CUmemPoolProps;
using cudaExternalMemoryHandleDesc = CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
using cudaIpcMemHandle_t = CUipcMemHandle;
using cudaMemAllocNodeParams = CUDA_MEM_ALLOC_NODE_PARAMS;

struct cudaExtent {
  size_t width;
  size_t height;
  size_t depth;
};

struct cudaPitchedPtr {
  void* ptr;
  size_t pitch;
  size_t xsize;
  size_t ysize;
};

struct cudaChannelFormatDesc {
  int x;
  int y;
  int z;
  int w;
  int f;
};

// ---- NCCL ----
using ncclResult_t = int;
inline constexpr ncclResult_t kNcclSystemError = 2;
using ncclComm_t = struct ncclComm*;
struct ncclConfig_t;
struct ncclUniqueId {
  char internal[128];
};

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_CUDA_ABI_H_
