// SPDX-License-Identifier: Apache-2.0
//
// What an event costs with one thread and with several, on the hit path through
// libdstrace.so. Prints the ratio; exit status 1 where it is above the bound.
//
// usage: scaling [BOUND [THREADS]]       1.2, 2; run under the preload
//
// Times are CPU times of the threads, so that other programs on the machine
// count little; a wait for a lock would not show in them and is looked for by
// capture_locks_test and stress_test. One thread and all of them take turns, of
// these the (upper) median counts, of many short rounds the shortest, and a bad
// result is measured again.

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/fakes/c10.h"

namespace {

constexpr int kPairs = 1000;  // most rounds fill no chunk: the hit path alone
constexpr int kRounds = 300;
constexpr int kAttempts = 20;
constexpr int kMaxThreads = 32;  // a GPU each
constexpr uintptr_t kFirstBlock = 0x7f0000000000;

double CpuNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec);
}

[[gnu::noinline]] void Report(uintptr_t block, int64_t size, size_t total,
                              int8_t device) {
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(block), size, total,
                                   size_t{2} << 20, {1, device});
  asm volatile("");
}

// Nanoseconds an event.
double Pairs(int8_t device) {
  const double begin = CpuNanoseconds();
  for (int i = 0; i < kPairs; ++i) {
    const uintptr_t block = kFirstBlock +
                            static_cast<uintptr_t>(i) % 256 * 512 +
                            (static_cast<uintptr_t>(device) << 32);
    Report(block, 512, 512, device);
    Report(block, -512, 0, device);
  }
  return (CpuNanoseconds() - begin) / (2 * kPairs);
}

struct Best {
  double one = std::numeric_limits<double>::max();
  double all = std::numeric_limits<double>::max();
};

double Median(std::vector<double> costs) {
  std::sort(costs.begin(), costs.end());
  return costs[costs.size() / 2];
}

// Thread 0 works in every round, the others in every second one.
Best Measure(int threads) {
  Best best;
  std::barrier barrier(threads);
  std::vector<double> costs(static_cast<size_t>(threads));
  const auto work = [&](int thread) {
    Pairs(static_cast<int8_t>(thread));
    for (int round = 0; round < kRounds; ++round) {
      barrier.arrive_and_wait();
      costs[static_cast<size_t>(thread)] = Pairs(static_cast<int8_t>(thread));
      barrier.arrive_and_wait();
      if (thread == 0) {
        best.all = std::min(best.all, Median(costs));
        best.one = std::min(best.one, Pairs(0));
      }
      barrier.arrive_and_wait();  // thread 0 is alone until here
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) {
    others.emplace_back(work, thread);
  }
  work(0);
  for (std::thread& other : others) other.join();
  return best;
}

// Something was recorded; it is not needed any more.
bool RemoveLog() {
  const char* const path = std::getenv("DSTRACE_OUTPUT");
  struct stat status {};
  if (path == nullptr || stat(path, &status) != 0) return false;
  unlink(path);
  return status.st_size > 1 << 20;
}

}  // namespace

int main(int argc, char** argv) {
  const double bound = argc > 1 ? std::atof(argv[1]) : 1.2;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
  if (threads < 2 || threads > kMaxThreads) {
    std::fprintf(stderr, "2 to %d threads\n", kMaxThreads);
    return 2;
  }
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Best best = Measure(threads);
    const double ratio = best.all / best.one;
    std::printf("one thread %.1f ns an event, %d threads %.1f: ratio %.3f\n",
                best.one, threads, best.all, ratio);
    if (ratio <= bound) return RemoveLog() ? 0 : 2;
  }
  RemoveLog();
  std::printf("above %.2f in %d attempts\n", bound, kAttempts);
  return 1;
}
