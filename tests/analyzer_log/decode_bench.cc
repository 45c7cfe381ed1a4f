// SPDX-License-Identifier: Apache-2.0
//
// Events per second of reading a trace of tensor events by eight threads.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "analyzer/log/trace_reader.h"
#include "analyzer/model/build_run.h"
#include "tests/support/trace_builder.h"

namespace dstrace::log {
namespace {

constexpr uint64_t kEvents = 4'000'000;

// A sliding window of live blocks, threads taking turns for `run` events.
std::string MakeTrace(uint32_t threads, uint64_t run) {
  dstrace::testing::TraceBuilder trace;
  const uint32_t stack = trace.NativeStack({"libtorch_cpu.so"});
  constexpr uint64_t kWindow = 400;
  for (uint64_t i = 0; i < kEvents / 2; ++i) {
    auto& thread = trace.thread(10 + static_cast<uint32_t>(i / run % threads));
    const uint64_t slot = i % kWindow;
    const uint64_t address = 0x7f0000000000 + slot * 0x200000;
    if (i >= kWindow) {
      thread.Free(trace.At(2000 * i), address, 1024 * (slot + 1));
    }
    thread.Alloc(trace.At(2000 * i + 700), stack, address, 1024 * (slot + 1));
  }
  return trace.Bytes();
}

class TraceFile {
 public:
  TraceFile(uint32_t threads, uint64_t run)
      : fd_(memfd_create("bench", MFD_CLOEXEC)),
        path_("/proc/self/fd/" + std::to_string(fd_)) {
    dstrace::testing::WriteFile(path_, MakeTrace(threads, run));
  }
  ~TraceFile() { close(fd_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

std::unique_ptr<TraceReader> MustOpen(const TraceFile& file) {
  auto reader = TraceReader::Open(file.path());
  if (!reader.ok()) std::abort();
  return *std::move(reader);
}

void CountEvents(benchmark::State& state, uint64_t bytes) {
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * kEvents));
  state.counters["bytes/event"] =
      static_cast<double>(bytes) / static_cast<double>(kEvents);
}

void BM_Open(benchmark::State& state) {
  const TraceFile file(8, static_cast<uint64_t>(state.range(0)));
  uint64_t bytes = 0;
  for (auto _ : state) bytes = MustOpen(file)->facts().file_bytes;
  CountEvents(state, bytes);
}

void BM_Replay(benchmark::State& state) {
  const TraceFile file(8, static_cast<uint64_t>(state.range(0)));
  const auto reader = MustOpen(file);
  for (auto _ : state) {
    model::EventVisitor nothing;
    if (!reader->Replay(nothing).ok()) std::abort();
  }
  CountEvents(state, reader->facts().file_bytes);
}

void BM_OpenAndBuildRun(benchmark::State& state) {
  const TraceFile file(8, static_cast<uint64_t>(state.range(0)));
  for (auto _ : state) {
    const auto reader = MustOpen(file);
    if (!model::BuildRun(*reader, {}).ok()) std::abort();
  }
  CountEvents(state, 0);
}

// Argument: events a thread makes before the next one has its turn.
BENCHMARK(BM_Open)->Arg(1000)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Replay)->Arg(1)->Arg(1000)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_OpenAndBuildRun)->Arg(1000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dstrace::log

BENCHMARK_MAIN();
