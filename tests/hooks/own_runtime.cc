// SPDX-License-Identifier: Apache-2.0
//
// A CUDA runtime of another version, which asks no driver: it hands out
// addresses of its own. As libcudart.so.12 it stands beside libcudart.so.13.

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
unsigned long g_next = OWN_FIRST_ADDRESS;
}

EXPORT int cudaMalloc(void** out, unsigned long size) {
  if (out == nullptr) return 1;
  *out = reinterpret_cast<void*>(g_next);
  g_next += size;
  return 0;
}

EXPORT int cudaFree(void*) { return 0; }
