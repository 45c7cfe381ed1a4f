// SPDX-License-Identifier: Apache-2.0
//
// Compiles only if cuda_abi.h and hook_table.inc mean what CUDA's headers
// mean: built where they are found, never run.

#include <cstddef>
#include <type_traits>

#include "preload/hooks/cuda_abi.h"

// Declares every version of every function, under its exported name.
#define __CUDA_API_VERSION_INTERNAL
#define __CUDART_API_VERSION_INTERNAL
#include <cuda.h>
#include <cuda_runtime_api.h>

// Nobody calls what is deprecated here.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

// Gone in CUDA 13, as CUDA 12 declares them.
#if CUDA_VERSION >= 13000
extern "C" {
cudaError_t cudaThreadExit();
cudaError_t cudaThreadSetLimit(enum cudaLimit limit, size_t value);
cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t* node, cudaGraph_t graph,
                                const cudaGraphNode_t* dependencies,
                                const cudaGraphEdgeData* edges, size_t count,
                                struct cudaGraphNodeParams* params);
}
#endif

namespace {

// Two types that are passed and returned alike: same size, both pointers, both
// integers or enums, or both structs.
template <class Ours, class Theirs>
constexpr bool kSameType =
    sizeof(Ours) == sizeof(Theirs) &&
    std::is_pointer_v<Ours> ==
        std::is_pointer_v<Theirs>&& std::is_class_v<Ours> ==
        std::is_class_v<Theirs>;

// What a pointer to one points at: structs we declare must be as large.
template <class T, class = void>
constexpr size_t kSize = 0;
template <class T>
constexpr size_t kSize<T, std::void_t<decltype(sizeof(T))>> = sizeof(T);

template <class Ours, class Theirs>
constexpr bool SameParameter() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using OurTarget = std::remove_cv_t<std::remove_pointer_t<Ours>>;
    using TheirTarget = std::remove_cv_t<std::remove_pointer_t<Theirs>>;
    // Incomplete on our side: only passed on.
    if constexpr (kSize<OurTarget> != 0 && kSize<TheirTarget> != 0 &&
                  !std::is_void_v<OurTarget> && !std::is_void_v<TheirTarget>) {
      return kSameType<OurTarget, TheirTarget>;
    }
    return true;
  } else {
    return kSameType<Ours, Theirs>;
  }
}

template <class Ours, class Theirs>
struct SameFunction : std::false_type {};
template <class R1, class... A1, class R2, class... A2>
struct SameFunction<R1(A1...), R2(A2...)> {
  static constexpr bool Check() {
    if constexpr (sizeof...(A1) == sizeof...(A2)) {
      return kSameType<R1, R2> && (SameParameter<A1, A2>() && ...);
    } else {
      return false;
    }
  }
  static constexpr bool value = Check();
};
// CUDA 11's cudaGraphInstantiate had two more arguments, which ours passes on.
template <class R1, class A, class B, class C, class R2, class X, class Y,
          class Z>
struct SameFunction<R1(A, B, C, char*, size_t), R2(X, Y, Z)>
    : SameFunction<R1(A, B, C), R2(X, Y, Z)> {};

}  // namespace

namespace dstrace::hooks {

#define DSTRACE_CHECK_HOOK(symbol, params)                             \
  using Ours_##symbol = int params;                                    \
  static_assert(                                                       \
      SameFunction<Ours_##symbol,                                      \
                   std::remove_pointer_t<decltype(&::symbol)>>::value, \
      #symbol " differs from CUDA's header");

// Written for the newest headers; older ones lack some functions.
#if CUDA_VERSION >= 13000
#define DSTRACE_DRIVER_HOOK(symbol, base, since, stream, body, params, args) \
  DSTRACE_CHECK_HOOK(symbol, params)
#define DSTRACE_RUNTIME_HOOK(symbol, body, params, args) \
  DSTRACE_CHECK_HOOK(symbol, params)
#include "preload/hooks/hook_table.inc"
#endif

template <class Ours, class Theirs>
constexpr bool kSameSize = sizeof(Ours) == sizeof(Theirs);

static_assert(kSameSize<CUmemAllocationProp, ::CUmemAllocationProp>);
static_assert(offsetof(CUmemAllocationProp, location) ==
              offsetof(::CUmemAllocationProp, location));
static_assert(offsetof(CUmemLocation, id) == offsetof(::CUmemLocation, id));
static_assert(kSameSize<CUmemPoolProps, ::CUmemPoolProps>);
static_assert(kSameSize<CUmemPoolProps, ::cudaMemPoolProps>);
static_assert(offsetof(CUmemPoolProps, location) ==
              offsetof(::CUmemPoolProps, location));
static_assert(offsetof(CUmemPoolProps, location) ==
              offsetof(::cudaMemPoolProps, location));
static_assert(kSameSize<CUmulticastObjectProp, ::CUmulticastObjectProp>);
static_assert(offsetof(CUmulticastObjectProp, size) ==
              offsetof(::CUmulticastObjectProp, size));
static_assert(kSameSize<CUDA_ARRAY_DESCRIPTOR, ::CUDA_ARRAY_DESCRIPTOR>);
static_assert(kSameSize<CUDA_ARRAY3D_DESCRIPTOR, ::CUDA_ARRAY3D_DESCRIPTOR>);
static_assert(offsetof(CUDA_ARRAY3D_DESCRIPTOR, format) ==
              offsetof(::CUDA_ARRAY3D_DESCRIPTOR, Format));
static_assert(kSameSize<CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
                        ::CUDA_EXTERNAL_MEMORY_HANDLE_DESC>);
static_assert(offsetof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size) ==
              offsetof(::CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size));
static_assert(offsetof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size) ==
              offsetof(::cudaExternalMemoryHandleDesc, size));
static_assert(
    kSameSize<CUDA_MEM_ALLOC_NODE_PARAMS, ::CUDA_MEM_ALLOC_NODE_PARAMS>);
static_assert(kSameSize<CUDA_MEM_ALLOC_NODE_PARAMS, ::cudaMemAllocNodeParams>);
static_assert(offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize) ==
              offsetof(::CUDA_MEM_ALLOC_NODE_PARAMS, bytesize));
static_assert(offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, dptr) ==
              offsetof(::cudaMemAllocNodeParams, dptr));
static_assert(kSameSize<CUuuid, ::CUuuid>);
static_assert(kSameSize<CUipcMemHandle, ::CUipcMemHandle>);
static_assert(kSameSize<CUipcMemHandle, ::cudaIpcMemHandle_t>);
static_assert(kSameSize<cudaExtent, ::cudaExtent>);
static_assert(kSameSize<cudaPitchedPtr, ::cudaPitchedPtr>);
static_assert(kSameSize<cudaChannelFormatDesc, ::cudaChannelFormatDesc>);
static_assert(kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kPoolReservedCurrent == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
static_assert(kPoolUsedCurrent == CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
static_assert(kGraphNodeMemAlloc == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
static_assert(kGraphNodeMemFree == CU_GRAPH_NODE_TYPE_MEM_FREE);
static_assert(kProcAddressLegacyStream == CU_GET_PROC_ADDRESS_LEGACY_STREAM);
static_assert(kProcAddressPerThreadStream ==
              CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
static_assert(kCudaOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kCudaNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kCudaErrorUnknown == ::cudaErrorUnknown);
#if CUDA_VERSION >= 12020
static_assert(kSameSize<CUgraphNodeParams, ::CUgraphNodeParams>);
static_assert(offsetof(CUgraphNodeParams, alloc) ==
              offsetof(::CUgraphNodeParams, alloc));
#endif

}  // namespace dstrace::hooks
