// SPDX-License-Identifier: Apache-2.0
//
// Reports COUNT allocation and free pairs to c10 at call depth DEPTH, as
// torch's allocator does; run under the preload it is the hook's whole path.
//
// usage: pairs COUNT DEPTH
// From Python: load the library of this name and call pairs_run(count).

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fakes/c10.h"

namespace {

constexpr c10::Device kCuda0 = {1, 0};
constexpr uintptr_t kFirstBlock = 0x7f0000000000;
constexpr int64_t kBlockBytes = 512;
constexpr uintptr_t kBlocks = 256;

[[gnu::noinline]] void Report(uintptr_t block, int64_t size, size_t total) {
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(block), size, total,
                                   size_t{2} << 20, kCuda0);
  asm volatile("");
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void pairs_run(long count) {
  for (long i = 0; i < count; ++i) {
    const uintptr_t block =
        kFirstBlock + static_cast<uintptr_t>(i) % kBlocks * kBlockBytes;
    Report(block, kBlockBytes, kBlockBytes);
    Report(block, -kBlockBytes, 0);
  }
}

namespace {

[[gnu::noinline]] void AtDepth(int depth, long count) {
  if (depth > 0) {
    AtDepth(depth - 1, count);
  } else {
    pairs_run(count);
  }
  asm volatile("");  // keeps the calls from becoming jumps
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: pairs COUNT DEPTH\n");
    return 2;
  }
  AtDepth(std::atoi(argv[2]), std::atol(argv[1]));
  return 0;
}
