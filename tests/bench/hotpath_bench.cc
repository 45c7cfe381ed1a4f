// SPDX-License-Identifier: Apache-2.0
//
// The pieces of one tensor event, each alone. tests/capture/capture_bench.cc
// has the whole.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>

#include "preload/capture/hash.h"
#include "preload/log/thread_log.h"
#include "preload/runtime/clock.h"
#include "preload/runtime/event_clock.h"
#include "preload/runtime/guard.h"
#include "preload/stacks/native.h"
#include "preload/stacks/stack_witness.h"
#include "proto/wire/records.h"

namespace dstrace {
namespace {

constexpr int kMaxFrames = 128;

// Recursion that neither inlining nor tail calls can flatten.
template <typename Body>
[[gnu::noinline]] void AtDepth(int64_t depth, const Body& body) {
  if (depth > 0) {
    AtDepth(depth - 1, body);
  } else {
    body();
  }
  asm volatile("");
}

void BM_Unwind(benchmark::State& state) {
  stacks::WarmUp();
  AtDepth(state.range(0), [&state] {
    void* pcs[kMaxFrames];
    int frames = 0;
    for (auto _ : state) {
      frames = stacks::CaptureNative(pcs, kMaxFrames);
      benchmark::DoNotOptimize(pcs);
    }
    state.counters["frames"] = frames;
  });
}
BENCHMARK(BM_Unwind)->Arg(3)->Arg(30);

void BM_RecogniseByWitness(benchmark::State& state) {
  AtDepth(state.range(0), [&state] {
    void* pcs[kMaxFrames];
    const int count = stacks::CaptureNative(pcs, kMaxFrames);
    const auto witness = std::make_unique<stacks::StackWitness>();
    const void* const frame = __builtin_frame_address(0);
    if (!stacks::RecordWitness(frame, pcs, count, witness.get())) {
      state.SkipWithError("no witness");
      return;
    }
    uint64_t found = 0;
    const auto words = static_cast<uint32_t>(witness->count);
    for (auto _ : state) {
      benchmark::DoNotOptimize(stacks::FirstMismatch(
          frame, witness->offsets, witness->words, words, &found));
    }
    state.counters["words"] = words;
  });
}
BENCHMARK(BM_RecogniseByWitness)->Arg(3)->Arg(30);

void BM_RecordWitness(benchmark::State& state) {
  AtDepth(state.range(0), [&state] {
    void* pcs[kMaxFrames];
    const int count = stacks::CaptureNative(pcs, kMaxFrames);
    const auto witness = std::make_unique<stacks::StackWitness>();
    for (auto _ : state) {
      benchmark::DoNotOptimize(stacks::RecordWitness(
          __builtin_frame_address(0), pcs, count, witness.get()));
    }
  });
}
BENCHMARK(BM_RecordWitness)->Arg(3)->Arg(30);

void BM_HashWords(benchmark::State& state) {
  uint64_t words[2 * kMaxFrames] = {1, 2, 3};
  const auto count = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    words[0] = capture::HashWords({words, count}, 1).low;
  }
  benchmark::DoNotOptimize(words);
}
BENCHMARK(BM_HashWords)->Arg(6)->Arg(60);

void BM_Clock(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(runtime::MonotonicNow());
}
BENCHMARK(BM_Clock);

void BM_Guard(benchmark::State& state) {
  for (auto _ : state) {
    const runtime::Guard guard;
    benchmark::DoNotOptimize(guard.entered());
  }
}
BENCHMARK(BM_Guard);

void BM_EventClock(benchmark::State& state) {
  runtime::StartEventClock();
  for (auto _ : state) benchmark::DoNotOptimize(runtime::EventNow());
}
BENCHMARK(BM_EventClock);

void BM_BlockDictionary(benchmark::State& state) {
  const auto blocks = std::make_unique<log::BlockDictionary>();
  blocks->Clear();
  constexpr uint64_t kBlocks = 256;
  const auto address = [](uint64_t i) {
    return 0x7f0000000000 + i % kBlocks * 512;
  };
  for (uint64_t i = 0; i < kBlocks; ++i) {
    benchmark::DoNotOptimize(blocks->Add(address(i), 512, 256));
  }
  uint64_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(blocks->Find(address(++i), 512, 256));
  }
}
BENCHMARK(BM_BlockDictionary);

void BM_PutTuple(benchmark::State& state) {
  uint8_t bytes[wire::kMaxTupleBytes];
  const uint64_t values[] = {1500, 17, 200};
  for (auto _ : state) {
    benchmark::DoNotOptimize(wire::PutTuple(
        bytes, wire::RecordField::kTensorAlloc, values, values + 3));
  }
}
BENCHMARK(BM_PutTuple);

}  // namespace
}  // namespace dstrace

BENCHMARK_MAIN();
