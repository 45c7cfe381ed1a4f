// SPDX-License-Identifier: Apache-2.0
//
// What a full chunk costs: kept and written to its place (and how long one in
// a hundred takes, which is a pause of the program), or given up for a mapping
// of the next one. Give a folder on the file system in question:
//
//   log_bench --folder=/var/tmp
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "preload/log/log_file.h"

namespace dstrace::log {
namespace {

std::string g_folder = "/tmp";

// A store into each of its pages, as records would.
void Fill(uint8_t* chunk) {
  for (size_t at = wire::kPayloadOffset; at < wire::kChunkBytes;
       at += wire::kPageBytes) {
    chunk[at] = 1;
  }
}

class Bench {
 public:
  Bench() : path_(g_folder + "/dstrace_log_bench.pb") {
    unlink(path_.c_str());
    if (log_.Open(path_.c_str(), {}) != OpenResult::kOk) {
      std::perror(path_.c_str());
      std::exit(1);
    }
  }
  ~Bench() { unlink(path_.c_str()); }
  LogFile* operator->() { return &log_; }

 private:
  const std::string path_;
  LogFile log_;
};

void BM_KeepAndWrite(benchmark::State& state) {
  Bench log;
  uint8_t* const chunk = log->OpenChunk(1, 1);
  std::vector<double> turns;  // us
  for (auto _ : state) {
    Fill(chunk);
    const auto begin = std::chrono::steady_clock::now();
    if (!log->TurnChunk(chunk, 2, 1, 3)) state.SkipWithError("disk full");
    turns.push_back(std::chrono::duration<double, std::micro>(
                        std::chrono::steady_clock::now() - begin)
                        .count());
  }
  std::sort(turns.begin(), turns.end());
  state.counters["p99_us"] = turns[turns.size() * 99 / 100];
  log->CloseChunk(chunk, 4);
}
BENCHMARK(BM_KeepAndWrite)->Iterations(2000);

void BM_MapTheNext(benchmark::State& state) {
  Bench log;
  for (auto _ : state) {
    uint8_t* const chunk = log->OpenChunk(1, 1);
    if (chunk == nullptr) {
      state.SkipWithError("disk full");
      break;
    }
    Fill(chunk);
    log->CloseChunk(chunk, 2);
  }
}
BENCHMARK(BM_MapTheNext)->Iterations(2000);

}  // namespace
}  // namespace dstrace::log

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--folder=", 9) == 0) {
      dstrace::log::g_folder = argv[i] + 9;
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
