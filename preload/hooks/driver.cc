// SPDX-License-Identifier: Apache-2.0
//
// The exported driver functions.

#include "preload/hooks/bodies_array.h"
#include "preload/hooks/bodies_context.h"
#include "preload/hooks/bodies_graph.h"
#include "preload/hooks/bodies_growth.h"
#include "preload/hooks/bodies_memory.h"
#include "preload/hooks/bodies_virtual.h"
#include "preload/hooks/call.h"
#include "preload/hooks/proc_address.h"

namespace dstrace::hooks {

constinit thread_local CallState t_call
    __attribute__((tls_model("initial-exec"))) = {};

namespace {

// CUDA 11.3's ABI.
struct GetProcAddress {
  template <Hook kHook>
  static CUresult Run(const void*, ProcAddressQuery::V1* real,
                      const char* symbol, void** function, int version,
                      uint64_t flags) noexcept {
    const CUresult result = real(symbol, function, version, flags);
    if (result == kCudaSuccess && function != nullptr) {
      *function = WrapDriverFunction(symbol, *function, version, flags,
                                     ProcAddressQuery(real));
    }
    return result;
  }
};

// CUDA 12.0's.
struct GetProcAddressV2 {
  template <Hook kHook>
  static CUresult Run(const void*, ProcAddressQuery::V2* real,
                      const char* symbol, void** function, int version,
                      uint64_t flags,
                      CUdriverProcAddressQueryResult* status) noexcept {
    const CUresult result = real(symbol, function, version, flags, status);
    if (result == kCudaSuccess && function != nullptr) {
      *function = WrapDriverFunction(symbol, *function, version, flags,
                                     ProcAddressQuery(real));
    }
    return result;
  }
};

}  // namespace

#define DSTRACE_DRIVER_HOOK(symbol, base, since, stream, body, params, args) \
  DSTRACE_DEFINE_HOOK(symbol, body, params, args)
#include "preload/hooks/hook_table.inc"

}  // namespace dstrace::hooks
