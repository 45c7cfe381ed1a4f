// SPDX-License-Identifier: Apache-2.0
//
// A library that is loaded and unloaded over and over. Compiled twice: the same
// functions at the same places under other names, with frames of other sizes,
// so that what was remembered about one is wrong about the other.
#include <cstddef>
#include <cstdint>

#include "tests/fakes/c10.h"

extern "C" int cudaMalloc(void** pointer, size_t size);
namespace {

// Part of the caller's frame.
inline void Use(volatile char* room) {
  room[0] = 1;
  room[CHURN_FRAME - 1] = 1;
}

}  // namespace

extern "C" {

[[gnu::noinline]] void CHURN_INNER(size_t size, uint64_t address) {
  volatile char room[CHURN_FRAME];
  Use(room);
  void* pointer = nullptr;
  cudaMalloc(&pointer, size);
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(address),
                                   static_cast<int64_t>(size), 0, 0, {1, 0});
  Use(room);
}

[[gnu::visibility("default")]] void CHURN_OUTER(size_t size, uint64_t address) {
  volatile char room[2 * CHURN_FRAME];
  Use(room);
  CHURN_INNER(size, address);
  Use(room);
}

}  // extern "C"
