// SPDX-License-Identifier: Apache-2.0
//
// Cost of one capture of 33 native frames without frame pointers, and of the
// Python part where an interpreter is embedded (python_capture_cost.py measures
// it inside a running one).

#include <benchmark/benchmark.h>

#include "preload/stacks/merge.h"
#include "preload/stacks/native.h"
#include "preload/stacks/python.h"
#include "preload/stacks/symbol.h"

namespace {

using dstrace::stacks::CaptureNative;

constexpr int kMaxFrames = 128;

// Recursion that neither inlining nor tail calls can flatten.
template <typename Body>
[[gnu::noinline]] int AtDepth(int depth, const Body& body) {
  if (depth == 0) return body();
  const int result = AtDepth(depth - 1, body);
  benchmark::DoNotOptimize(depth);
  return result + 1;
}

void BM_CaptureNative(benchmark::State& state) {
  dstrace::stacks::WarmUp();
  const auto depth = static_cast<int>(state.range(0));
  AtDepth(depth, [&state] {
    void* pcs[kMaxFrames];
    int frames = 0;
    for (auto _ : state) {
      frames = CaptureNative(pcs, kMaxFrames);
      benchmark::DoNotOptimize(pcs);
    }
    state.counters["frames"] = frames;
    return 0;
  });
}
BENCHMARK(BM_CaptureNative)->Arg(1)->Arg(26)->Arg(60);

void BM_CapturePythonWithoutPython(benchmark::State& state) {
  dstrace::stacks::PyFrame frames[kMaxFrames];
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        dstrace::stacks::CapturePython(frames, kMaxFrames, nullptr));
  }
}
BENCHMARK(BM_CapturePythonWithoutPython);

void BM_DescribeNative(benchmark::State& state) {
  const auto pc = reinterpret_cast<uintptr_t>(&CaptureNative);
  dstrace::stacks::SymbolInfo info;
  for (auto _ : state) {
    benchmark::DoNotOptimize(dstrace::stacks::DescribeNative(pc, &info));
  }
}
BENCHMARK(BM_DescribeNative);

}  // namespace

BENCHMARK_MAIN();
