// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_REAL_H_
#define DSTRACE_PRELOAD_HOOKS_REAL_H_

// The functions behind our wrappers, one per row of hook_table.inc, and the
// few that dstrace calls for its own questions.
//
// A real function is looked for, in this order:
//   1. after us in the link order (another preload comes before CUDA itself);
//   2. in the caller's own libraries (Python opens cudart RTLD_LOCAL);
//   3. in the layer's library where one is loaded at all.
//
// Thread-safety: thread-safe. A lookup may take the loader's lock; a cached
// answer is one load.

#include <atomic>
#include <cstddef>

#include "preload/hooks/hook_id.h"

namespace dstrace::hooks {

// Asked by dstrace itself; never through a hook of ours.
#define DSTRACE_QUERIES(X)                 \
  X(cuCtxGetCurrent, kDriver)              \
  X(cuCtxGetDevice, kDriver)               \
  X(cuCtxPushCurrent_v2, kDriver)          \
  X(cuCtxPopCurrent_v2, kDriver)           \
  X(cuMemGetInfo_v2, kDriver)              \
  X(cuDeviceGetName, kDriver)              \
  X(cuDeviceGetUuid_v2, kDriver)           \
  X(cuDeviceTotalMem_v2, kDriver)          \
  X(cuDriverGetVersion, kDriver)           \
  X(cuDevicePrimaryCtxGetState, kDriver)   \
  X(cuDeviceGetMemPool, kDriver)           \
  X(cuMemPoolGetAttribute, kDriver)        \
  X(cuDeviceGetGraphMemAttribute, kDriver) \
  X(cuStreamIsCapturing, kDriver)          \
  X(cuPointerGetAttribute, kDriver)        \
  X(ncclCommMemStats, kNccl)               \
  X(cudaRuntimeGetVersion, kRuntime)

enum class Query : uint16_t {
#define DSTRACE_QUERY_ID(symbol, layer) symbol,
  DSTRACE_QUERIES(DSTRACE_QUERY_ID)
#undef DSTRACE_QUERY_ID
      kCount,
};

inline constexpr size_t kSlotCount =
    kHookCount + static_cast<size_t>(Query::kCount);

constexpr size_t SlotOf(Hook hook) noexcept {
  return static_cast<size_t>(hook);
}
constexpr size_t SlotOf(Query query) noexcept {
  return kHookCount + static_cast<size_t>(query);
}

extern std::atomic<void*> g_real[kSlotCount];

// Slow path of RealOf. `caller`: a code address in the calling library, or
// null.
void* FindReal(size_t slot, const void* caller) noexcept;

// The real function, or null if no library has it.
template <class Id>
inline void* RealOf(Id id, const void* caller = nullptr) noexcept {
  const size_t slot = SlotOf(id);
  // acquire: pairs with the releases in real.cc, so that what the finder saw
  // of the library is seen here too.
  void* real = g_real[slot].load(std::memory_order_acquire);
  return __builtin_expect(real != nullptr, 1) ? real : FindReal(slot, caller);
}

// The same for a runtime function where two CUDA runtimes may be loaded (pip
// packages bring their own): the one that `caller` is linked with, as symbol
// versions would have had it. Costs one more load where `caller` was seen.
void* RealOfRuntime(Hook hook, const void* caller) noexcept;

// As a plain linker would find it for `caller`: steps 1 and 2 only.
void* FindLinked(Hook hook, const void* caller) noexcept;

// Takes `real` where no real function of the hook is known yet. Returns the
// one that is known afterwards.
void* OfferReal(Hook hook, void* real) noexcept;

// After a dlclose(): forgets real functions whose library is gone.
void ForgetUnloaded() noexcept;

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_REAL_H_
