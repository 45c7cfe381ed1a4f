// SPDX-License-Identifier: Apache-2.0
//
// A library that allocates, linked with CUDA.
#include <cstddef>

extern "C" {
int cudaMalloc(void** pointer, size_t size);
int cudaFree(void* pointer);

__attribute__((visibility("default"))) int plugin_pair(size_t size) {
  void* pointer = nullptr;
  const int result = cudaMalloc(&pointer, size);
  return result != 0 ? result : cudaFree(pointer);
}
__attribute__((visibility("default"))) void* plugin_alloc(size_t size, int,
                                                          void*) {
  void* pointer = nullptr;
  return cudaMalloc(&pointer, size) == 0 ? pointer : nullptr;
}
__attribute__((visibility("default"))) void plugin_free(void* pointer, size_t,
                                                        int, void*) {
  cudaFree(pointer);
}
}
