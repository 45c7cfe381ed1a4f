// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_FAKES_FAKE_TORCH_H_
#define DSTRACE_TESTS_FAKES_FAKE_TORCH_H_

// A stand-in for torch's CUDA caching allocator (libc10_cuda.so): segments
// from cudaMalloc (2 MiB for small blocks, 20 MiB or the rounded size for
// large ones), blocks of 512 bytes and up cut from them, one report to c10 per
// allocation and free. A block that another stream used is not reusable until
// its events are done.
//
// Thread-safety: thread-safe, one lock. Plain C, for ctypes.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Null when the device is full, after an out-of-memory report.
void* fake_torch_malloc(size_t bytes);
void fake_torch_free(void* block);
// `block` is also used on `stream` (not null).
void fake_torch_record_stream(void* block, void* stream);
// Gives unused segments back with cudaFree.
void fake_torch_empty_cache(void);
uint64_t fake_torch_memory_allocated(void);
uint64_t fake_torch_memory_reserved(void);

#ifdef __cplusplus
}
#endif

#endif  // DSTRACE_TESTS_FAKES_FAKE_TORCH_H_
