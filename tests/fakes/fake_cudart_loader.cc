// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tests/fakes/fake_cudart.h"

namespace dstrace::fakes {

Driver g_driver;

namespace {

enum Mode : uint8_t { kAny, kLegacy, kPerThread };

constexpr cudaError_t kNoDriver = 35;

void* g_get_proc_address = nullptr;
bool g_old_abi = false;
std::once_flag g_load_once;
bool g_loaded = false;

void* Find(const char* base, int since, Mode mode) {
  void* found = nullptr;
  const uint64_t flags = mode == kPerThread ? kProcAddressPerThreadStream
                                            : kProcAddressLegacyStream;
  if (g_old_abi) {
    using Get = CUresult(const char*, void**, int, uint64_t);
    reinterpret_cast<Get*>(g_get_proc_address)(base, &found, since, flags);
  } else {
    using Get = CUresult(const char*, void**, int, uint64_t, int*);
    int status = 0;
    reinterpret_cast<Get*>(g_get_proc_address)(base, &found, since, flags,
                                               &status);
  }
  return found;
}

template <class F>
void Fill(F*& function, const char* base, int since, Mode mode) {
  function = reinterpret_cast<F*>(Find(base, since, mode));
}

void Load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const char* abi = std::getenv("FAKE_CUDART_ABI");
  g_old_abi = abi != nullptr && std::strcmp(abi, "11") == 0;
  g_get_proc_address =
      dlsym(library, g_old_abi ? "cuGetProcAddress" : "cuGetProcAddress_v2");
  if (g_get_proc_address == nullptr) return;
#define DSTRACE_DRIVER_HOOK(symbol, base, since, stream, body, params, args) \
  Fill(g_driver.symbol, #base, since, stream);
#include "preload/hooks/hook_table.inc"
#define FAKE_DRIVER_EXTRA(symbol, base, since, params, args) \
  Fill(g_driver.symbol, #base, since, kAny);
#include "tests/fakes/fake_driver_extra.inc"
  g_loaded = g_driver.cuInit(0) == kCudaSuccess;
}

}  // namespace

int& ThreadDevice() {
  static thread_local int device = 0;
  return device;
}

cudaError_t Ready() {
  std::call_once(g_load_once, Load);
  if (!g_loaded) return kNoDriver;
  const int device = ThreadDevice();
  int current = -1;
  // Also finds out that the context was reset meanwhile.
  if (g_driver.cuCtxGetDevice(&current) == 0 && current == device) return 0;
  CUcontext context = nullptr;
  const cudaError_t result =
      g_driver.cuDevicePrimaryCtxRetain(&context, device);
  return result != 0 ? result : g_driver.cuCtxSetCurrent(context);
}

void* FindDriverFunction(const char* base, int version, bool per_thread) {
  return Find(base, version, per_thread ? kPerThread : kLegacy);
}

}  // namespace dstrace::fakes
