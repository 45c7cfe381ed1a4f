// SPDX-License-Identifier: Apache-2.0
//
// Cost of one tensor event, without an interpreter in the process.
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>

#include "preload/capture/record_tensor.h"
#include "preload/capture/recorder.h"
#include "preload/runtime/config.h"
#include "preload/runtime/guard.h"

namespace dstrace::capture {
namespace {

constexpr TorchDevice kCuda0{.type = 1, .index = 0};

__attribute__((noinline)) void Pair(uint64_t address, int depth) {
  if (depth > 0) {
    Pair(address, depth - 1);
    asm volatile("");  // keeps the call from becoming a jump
    return;
  }
  {
    const runtime::Guard guard;
    RecordTensor(nullptr, address, 512, 512, 2 << 20, kCuda0);
  }
  const runtime::Guard guard;
  RecordTensor(nullptr, address, -512, 0, 2 << 20, kCuda0);
}

void BM_AllocFreePair(benchmark::State& state) {
  const int depth = static_cast<int>(state.range(0));
  uint64_t i = 0;
  for (auto _ : state) {
    Pair(0x7f0000000000 + (++i % 256) * 512, depth);
  }
}
BENCHMARK(BM_AllocFreePair)->Arg(1)->Arg(30)->Threads(1)->Threads(2);

}  // namespace
}  // namespace dstrace::capture

int main(int argc, char** argv) {
  char folder[] = "/tmp/dstrace_bench_XXXXXX";
  const char* made = mkdtemp(folder);
  if (made == nullptr || chdir(made) != 0) return 1;
  dstrace::runtime::ReadConfig();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
