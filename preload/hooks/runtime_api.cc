// SPDX-License-Identifier: Apache-2.0
//
// The exported CUDA runtime functions. They label what the driver does beneath
// them, and speak for themselves only where nothing was seen there.

#include "preload/hooks/bodies_array.h"
#include "preload/hooks/bodies_context.h"
#include "preload/hooks/bodies_graph.h"
#include "preload/hooks/bodies_memory.h"
#include "preload/hooks/call.h"
#include "preload/hooks/proc_address.h"
#include "preload/hooks/torch_events.h"

namespace dstrace::hooks {
namespace {

using capture::StreamEventKind;

void RecordTorchEvent(StreamEventKind kind, cudaEvent_t event,
                      CUstream stream) noexcept {
  runtime::Guard guard;
  if (guard.entered()) {
    capture::RecordStreamEvent(kind, Number(event), Number(stream));
  }
}

struct EventRecord {
  template <Hook kHook, class Real, class... Flags>
  static cudaError_t Run(const void* caller, Real* real, cudaEvent_t event,
                         cudaStream_t stream, Flags... flags) noexcept {
    const cudaError_t result = real(event, stream, flags...);
    if (result == 0 && IsTorchAllocator(caller)) {
      RecordTorchEvent(StreamEventKind::kRecord, event, stream);
    }
    return result;
  }
};
struct EventRecordWithFlags : EventRecord {};

struct EventQuery {
  template <Hook kHook, class Real>
  static cudaError_t Run(const void* caller, Real* real,
                         cudaEvent_t event) noexcept {
    const cudaError_t result = real(event);
    if (result == 0 && IsTorchAllocator(caller)) {
      RecordTorchEvent(StreamEventKind::kReady, event, nullptr);
    }
    return result;
  }
};

// A runtime that looks up driver functions through our cuGetProcAddress hands
// out wrappers already; this is for one that does not.
void WrapEntryPoint(const char* symbol, void** function, int version,
                    unsigned long long flags, bool per_thread) noexcept {
  auto* query = reinterpret_cast<ProcAddressQuery::V2*>(
      RealOf(Hook::cuGetProcAddress_v2));
  if (query == nullptr || function == nullptr) return;
  // Flag 0 means the caller's own default, which only its twin tells.
  if (flags == kProcAddressDefault && per_thread) {
    flags = kProcAddressPerThreadStream;
  }
  *function = WrapDriverFunction(symbol, *function, version, flags,
                                 ProcAddressQuery(query));
}

constexpr bool IsPerThread(Hook hook) noexcept {
  return hook == Hook::cudaGetDriverEntryPoint_ptsz ||
         hook == Hook::cudaGetDriverEntryPointByVersion_ptsz;
}

int RuntimeVersion() noexcept {
  auto* real = reinterpret_cast<cudaError_t (*)(int*)>(
      RealOf(Query::cudaRuntimeGetVersion));
  int version = 0;
  return real != nullptr && real(&version) == 0 ? version : 0;
}

// CUDA 11's has no `status`; what stands in its place is passed on unread.
struct GetDriverEntryPoint {
  template <Hook kHook, class Real>
  static cudaError_t Run(const void*, Real* real, const char* symbol,
                         void** function, unsigned long long flags,
                         cudaDriverEntryPointQueryResult* status) noexcept {
    const cudaError_t result = real(symbol, function, flags, status);
    if (result == 0) {
      WrapEntryPoint(symbol, function, RuntimeVersion(), flags,
                     IsPerThread(kHook));
    }
    return result;
  }
};

struct GetDriverEntryPointByVersion {
  template <Hook kHook, class Real>
  static cudaError_t Run(const void*, Real* real, const char* symbol,
                         void** function, unsigned int version,
                         unsigned long long flags,
                         cudaDriverEntryPointQueryResult* status) noexcept {
    const cudaError_t result = real(symbol, function, version, flags, status);
    if (result == 0) {
      WrapEntryPoint(symbol, function, static_cast<int>(version), flags,
                     IsPerThread(kHook));
    }
    return result;
  }
};

}  // namespace

#define DSTRACE_RUNTIME_HOOK(symbol, body, params, args) \
  DSTRACE_DEFINE_HOOK(symbol, body, params, args)
#include "preload/hooks/hook_table.inc"

}  // namespace dstrace::hooks
