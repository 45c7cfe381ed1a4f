// SPDX-License-Identifier: Apache-2.0
//
// What an event costs with one thread and with several, on the hit path through
// libdstrace.so. Prints the ratio; exit status 1 where it is above the bound.
//
// usage: scaling [BOUND [THREADS [PAIRS]]]    1.2, 2, 1000 a round; run under
//                                             the preload
//
// Each thread has a processor where there are enough, and is compared with
// itself: it works in rounds with all others and in as many alone, the shortest
// of each count; then the (upper) median of the threads, since processors of
// one machine differ. A bad result is measured again.
//
// CPU times, so that other programs on the machine count little; a wait for a
// lock does not show in them and is looked for by capture_locks_test and
// stress_test. Most rounds of 1000 pairs fill no chunk: the hit path alone.
// Rounds of a hundred thousand also write the file, all of them into one; the
// elapsed times, printed too, hold what they wait there.
#include <pthread.h>
#include <sched.h>
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

constexpr int kRoundPairs = 1000;
constexpr int kRounds = 150;  // of each thread
constexpr int kMinRounds = 2;
constexpr int kAttempts = 20;
constexpr int kMaxThreads = 32;  // a GPU each
constexpr uintptr_t kFirstBlock = 0x7f0000000000;

struct Cost {  // nanoseconds, of a thread or of an event
  double cpu = std::numeric_limits<double>::max();
  double elapsed = std::numeric_limits<double>::max();
};

double Nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return 1e9 * static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec);
}

Cost Now() {
  return {Nanoseconds(CLOCK_THREAD_CPUTIME_ID), Nanoseconds(CLOCK_MONOTONIC)};
}

[[gnu::noinline]] void Report(uintptr_t block, int64_t size, size_t total,
                              int8_t device) {
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(block), size, total,
                                   size_t{2} << 20, {1, device});
  asm volatile("");
}

// Of an event.
Cost Pairs(int pairs, int8_t device) {
  const Cost begin = Now();
  for (int i = 0; i < pairs; ++i) {
    const uintptr_t block = kFirstBlock +
                            static_cast<uintptr_t>(i) % 256 * 512 +
                            (static_cast<uintptr_t>(device) << 32);
    Report(block, 512, 512, device);
    Report(block, -512, 0, device);
  }
  const Cost end = Now();
  return {(end.cpu - begin.cpu) / (2 * pairs),
          (end.elapsed - begin.elapsed) / (2 * pairs)};
}

void KeepLeast(Cost& best, const Cost& cost) {
  best.cpu = std::min(best.cpu, cost.cpu);
  best.elapsed = std::min(best.elapsed, cost.elapsed);
}

struct Thread {
  Cost alone;
  Cost together;
};

template <typename Value>
double Median(const std::vector<Thread>& threads, Value value) {
  std::vector<double> values;
  values.reserve(threads.size());
  for (const Thread& thread : threads) values.push_back(value(thread));
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void TakeProcessor(int thread, int threads) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  if (CPU_COUNT(&all) < threads) return;
  int left = thread;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all) || left-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
  }
}

std::vector<Thread> Measure(int count, int pairs) {
  std::vector<Thread> threads(static_cast<size_t>(count));
  std::barrier barrier(count);
  const int rounds = std::max(kRounds * kRoundPairs / pairs, kMinRounds);
  const auto work = [&](int number) {
    TakeProcessor(number, count);
    Thread& thread = threads[static_cast<size_t>(number)];
    const auto device = static_cast<int8_t>(number);
    Pairs(kRoundPairs, device);
    for (int turn = 0; turn < 2 * rounds * count; ++turn) {
      const bool is_mine = turn / 2 % count == number;
      const bool is_alone = turn % 2 == 1;
      barrier.arrive_and_wait();
      if (is_alone && !is_mine) continue;
      const Cost cost = Pairs(pairs, device);  // one place, so one stack
      if (!is_mine) continue;
      KeepLeast(is_alone ? thread.alone : thread.together, cost);
    }
  };
  std::vector<std::thread> running;
  running.reserve(threads.size());
  for (int number = 0; number < count; ++number) {
    running.emplace_back(work, number);
  }
  for (std::thread& thread : running) thread.join();
  return threads;
}

double Print(const std::vector<Thread>& threads, const char* name,
             double Cost::*what) {
  const double ratio = Median(threads, [what](const Thread& thread) {
    return thread.together.*what / thread.alone.*what;
  });
  std::printf(
      "%s: alone %.1f ns an event, %zu threads %.1f, ratio %.3f\n", name,
      Median(threads, [what](const Thread& t) { return t.alone.*what; }),
      threads.size(),
      Median(threads, [what](const Thread& t) { return t.together.*what; }),
      ratio);
  return ratio;
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
  const int pairs = argc > 3 ? std::atoi(argv[3]) : kRoundPairs;
  if (threads < 2 || threads > kMaxThreads || pairs < 1) {
    std::fprintf(stderr, "2 to %d threads, 1 pair or more\n", kMaxThreads);
    return 2;
  }
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::vector<Thread> measured = Measure(threads, pairs);
    const double ratio = Print(measured, "CPU time", &Cost::cpu);
    Print(measured, "elapsed", &Cost::elapsed);
    if (ratio <= bound) return RemoveLog() ? 0 : 2;
  }
  RemoveLog();
  std::printf("above %.2f in %d attempts\n", bound, kAttempts);
  return 1;
}
