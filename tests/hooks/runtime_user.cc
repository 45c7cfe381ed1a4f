// SPDX-License-Identifier: Apache-2.0
//
// A library that is linked with a CUDA runtime of its own.

extern "C" int cudaMalloc(void** out, unsigned long size);

extern "C" __attribute__((visibility("default"))) int UserMalloc(void** out) {
  // Not a tail call, which would leave no trace of this library.
  const int result = cudaMalloc(out, 4096);
  asm volatile("" ::: "memory");
  return result;
}
