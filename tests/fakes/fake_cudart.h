// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_FAKES_FAKE_CUDART_H_
#define DSTRACE_TESTS_FAKES_FAKE_CUDART_H_

// A CUDA runtime over whatever libcuda.so.1 is there, which it reaches as the
// real one does: dlopen, dlsym("cuGetProcAddress_v2"), then one look-up per
// driver function. FAKE_CUDART_ABI=11 makes it use CUDA 11's four-argument
// cuGetProcAddress. Exports are versioned like the real one's.
//
// Thread-safety: thread-safe.

#include <cstddef>
#include <cstdint>

#include "preload/hooks/cuda_abi.h"

namespace dstrace::fakes {

// NOLINTNEXTLINE(google-build-using-namespace): the fake speaks that ABI only
using namespace ::dstrace::hooks;

// One member per driver function, named as it is exported.
struct Driver {
#define DSTRACE_DRIVER_HOOK(symbol, base, since, stream, body, params, args) \
  CUresult(*symbol) params;
#include "preload/hooks/hook_table.inc"
#define FAKE_DRIVER_EXTRA(symbol, base, since, params, args) \
  CUresult(*symbol) params;
#include "tests/fakes/fake_driver_extra.inc"
};

extern Driver g_driver;

// The calling thread's device.
int& ThreadDevice();

// Loads the driver and makes the thread's device current; an error otherwise.
cudaError_t Ready();

template <class F, class... Args>
cudaError_t Do(F* Driver::*function, Args... args) {
  const cudaError_t result = Ready();
  return result != 0 ? result : (g_driver.*function)(args...);
}

// cudaGetDriverEntryPoint's look-up.
void* FindDriverFunction(const char* base, int version, bool per_thread);

#define DSTRACE_RUNTIME_HOOK(symbol, body, params, args) \
  cudaError_t symbol params;
#include "preload/hooks/hook_table.inc"

}  // namespace dstrace::fakes

#endif  // DSTRACE_TESTS_FAKES_FAKE_CUDART_H_
