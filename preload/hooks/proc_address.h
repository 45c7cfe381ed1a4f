// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_PROC_ADDRESS_H_
#define DSTRACE_PRELOAD_HOOKS_PROC_ADDRESS_H_

// cuGetProcAddress and its kin: (name, CUDA version, stream flags) -> the
// wrapper with exactly that function's signature.
//
// Thread-safety: thread-safe.

#include <cstdint>

#include "preload/hooks/cuda_abi.h"
#include "preload/hooks/hook_id.h"

namespace dstrace::hooks {

// The driver's own look-up, under whichever of its two ABIs the caller used.
class ProcAddressQuery {
 public:
  using V1 = CUresult(const char*, void**, int, uint64_t);
  using V2 = CUresult(const char*, void**, int, uint64_t,
                      CUdriverProcAddressQueryResult*);

  explicit ProcAddressQuery(V1* real) noexcept : v1_(real) {}
  explicit ProcAddressQuery(V2* real) noexcept : v2_(real) {}

  // Null if the driver has no such function.
  [[nodiscard]] void* Find(const char* symbol, int version,
                           uint64_t flags) const noexcept;

 private:
  V1* v1_ = nullptr;
  V2* v2_ = nullptr;
};

// What to hand out instead of `found`, which the driver answered to (symbol,
// version, flags): our wrapper, or `found` itself where the function is not
// hooked. A version of a hooked function that the table does not know is
// handed out as it is and counted as loss.
void* WrapDriverFunction(const char* symbol, void* found, int version,
                         uint64_t flags,
                         const ProcAddressQuery& query) noexcept;

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_PROC_ADDRESS_H_
