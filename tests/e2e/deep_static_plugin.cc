// SPDX-License-Identifier: Apache-2.0
//
// A library that reaches the driver as a CUDA runtime linked into it would.
#include <dlfcn.h>

#include <cstddef>

extern "C" __attribute__((visibility("default"))) int plugin_pair(size_t size) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 1;
  const auto alloc = reinterpret_cast<int (*)(unsigned long long*, size_t)>(
      dlsym(driver, "cuMemAlloc_v2"));
  const auto release = reinterpret_cast<int (*)(unsigned long long)>(
      dlsym(driver, "cuMemFree_v2"));
  if (alloc == nullptr || release == nullptr) return 2;
  unsigned long long pointer = 0;
  const int result = alloc(&pointer, size);
  return result != 0 ? result : release(pointer);
}
