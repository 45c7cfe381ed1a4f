// SPDX-License-Identifier: Apache-2.0
//
// What stress_test runs: linked with libdstrace.so before the fakes, so that
// every call takes the way it takes under LD_PRELOAD, in sanitized builds too.
//
//   stress_program threads THREADS EVENTS ORACLE
//   stress_program stacks COUNT
//   stress_program futex EVENTS
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <latch>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/fakes/c10.h"
#include "tests/support/largest_resident.h"

extern "C" {
int cudaMalloc(void** pointer, size_t size);
int cudaFree(void* pointer);
}
namespace {

// errno is the program's own, whatever the report leads to: a first event, a
// new stack, the end of a chunk, a checkpoint.
void Report(uint64_t address, int64_t size, uint64_t total, int device) {
  errno = ENOTTY;
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(address), size,
                                   total, 0, {1, static_cast<int8_t>(device)});
  if (errno != ENOTTY) _exit(13);
}

// One thread's random allocations and frees: tensors of a GPU of its own, since
// torch's totals are told under its allocator's lock, and device memory.
class Churn {
 public:
  explicit Churn(int thread)
      : thread_(thread),
        base_(0x700000000000 + (uint64_t{1} << 36) * thread),
        random_(thread + 1) {}

  void Run(int events) {
    for (int i = 0; i < events; ++i) {
      if (i % 64 == 63) {
        DeviceStep(i);
      } else {
        TensorStep(i);
      }
    }
  }
  void Write(std::FILE* out) const {
    std::fprintf(out, "calls %d %d %d %d\n", allocs_, frees_, mallocs_,
                 device_frees_);
    for (const auto& [address, size] : live_) {
      std::fprintf(out, "tensor %" PRIu64 " %" PRIu64 "\n", address, size);
    }
    for (const auto& [pointer, size] : device_) {
      std::fprintf(out, "device %" PRIu64 " %" PRIu64 "\n",
                   reinterpret_cast<uint64_t>(pointer), size);
    }
  }

 private:
  static constexpr size_t kMostLive = 200;

  [[gnu::noinline]] void TensorStep(int i) {
    if (live_.size() > kMostLive || (!live_.empty() && random_() % 2 == 0)) {
      auto victim = live_.lower_bound(base_ + random_() % 4096 * 512);
      if (victim == live_.end()) victim = live_.begin();
      const auto [address, size] = *victim;
      live_.erase(victim);
      total_ -= size;
      ++frees_;
      Report(address, -static_cast<int64_t>(size), total_, thread_);
      return;
    }
    const uint64_t address = base_ + random_() % 4096 * 512;
    if (live_.contains(address)) return;
    const uint64_t size = 512 * (1 + static_cast<uint64_t>(i) % 1000);
    live_[address] = size;
    total_ += size;
    ++allocs_;
    Report(address, static_cast<int64_t>(size), total_, thread_);
  }

  [[gnu::noinline]] void DeviceStep(int i) {
    if (device_.size() > 4) {
      void* const pointer = device_.begin()->first;
      device_.erase(device_.begin());
      ++device_frees_;
      if (cudaFree(pointer) != 0) _exit(11);
      return;
    }
    void* pointer = nullptr;
    const uint64_t size = 512 * (1 + static_cast<uint64_t>(i) % 100);
    if (cudaMalloc(&pointer, size) != 0) _exit(12);
    device_[pointer] = size;
    ++mallocs_;
  }

  const int thread_;
  const uint64_t base_;
  std::mt19937_64 random_;
  std::map<uint64_t, uint64_t> live_;
  std::map<void*, uint64_t> device_;
  uint64_t total_ = 0;
  int allocs_ = 0, frees_ = 0, mallocs_ = 0, device_frees_ = 0;
};

int Threads(int threads, int events, const char* oracle) {
  std::vector<Churn> churns;
  for (int t = 0; t < threads; ++t) churns.emplace_back(t);
  std::latch start(threads);
  std::vector<std::thread> all;
  for (Churn& churn : churns) {
    all.emplace_back([&churn, &start, events] {
      start.arrive_and_wait();
      churn.Run(events);
    });
  }
  for (std::thread& thread : all) thread.join();
  std::FILE* const out = std::fopen(oracle, "w");
  if (out == nullptr) return 3;
  for (const Churn& churn : churns) churn.Write(out);
  return std::fclose(out);
}

constexpr int kStackBits = 22;

}  // namespace

// Stack number i has, from the outside, a call for each bit of i. Not in the
// unnamed namespace: their names are to be in the trace.
extern "C" {
void StressLeft(uint64_t number, int bits);
void StressRight(uint64_t number, int bits);
}

namespace {

uint64_t g_total = 0;

void Descend(uint64_t number, int bits) {
  if (bits == 0) {
    const uint64_t size = 512 * (number + 1);
    g_total += size;
    Report(0x7f0000000000 + number * 512, static_cast<int64_t>(size), g_total,
           0);
  } else if ((number >> (bits - 1) & 1) != 0) {
    StressRight(number, bits - 1);
  } else {
    StressLeft(number, bits - 1);
  }
}

// Misses, all of them.
int Stacks(uint64_t count) {
  const long before = dstrace::testing::LargestResidentKib();
  for (uint64_t i = 0; i < count; ++i) Descend(i, kStackBits);
  std::printf("%ld\n", dstrace::testing::LargestResidentKib() - before);
  return 0;
}

// --- no futex on the hit path -----------------------------------------------

std::atomic<int> g_futexes{0};

void OnTrap(int, siginfo_t*, void* context) {
  g_futexes.fetch_add(1, std::memory_order_relaxed);
  // As if interrupted: whoever waits looks again.
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RAX] = -EINTR;
}

// From here on futex() of the calling thread raises SIGSYS.
bool TrapFutexes() {
  struct sigaction action {};
  action.sa_sigaction = OnTrap;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return false;
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(filter)),
                              filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

[[gnu::noinline]] void Hits(int events, int device) {
  for (int i = 0; i < events; i += 2) {
    const uint64_t block =
        0x7f0000000000 + static_cast<uint64_t>(i) % 256 * 512;
    Report(block, 512, 512, device);
    Report(block, -512, 0, device);
  }
}

// All threads go through the hit path at once; one of them is watched.
int Futexes(int events) {
  constexpr int kThreads = 4;
  std::atomic<bool> stop{false};
  std::latch warm(kThreads);
  std::vector<std::thread> others;
  for (int t = 1; t < kThreads; ++t) {
    others.emplace_back([&, t] {
      Hits(1000, t);
      warm.arrive_and_wait();
      while (!stop.load(std::memory_order_relaxed)) Hits(100, t);
    });
  }
  Hits(1000, 0);
  warm.arrive_and_wait();
  if (!TrapFutexes()) return 77;
  // The trap itself works.
  syscall(SYS_futex, &g_futexes, 1, 0, nullptr, nullptr, 0);
  if (g_futexes.exchange(0) != 1) return 4;
  Hits(events, 0);
  const int seen = g_futexes.load();
  stop.store(true, std::memory_order_relaxed);
  std::printf("%d\n", seen);
  std::fflush(stdout);
  _exit(0);  // join() would use futex
}

}  // namespace

extern "C" {
__attribute__((noinline, visibility("default"))) void StressLeft(
    uint64_t number, int bits) {
  Descend(number, bits);
  asm volatile("");  // no tail call: this frame is in the stack
}
__attribute__((noinline, visibility("default"))) void StressRight(
    uint64_t number, int bits) {
  Descend(number, bits);
  asm volatile("nop");  // differs from the other one
}
}

int main(int argc, char** argv) {
  const std::string_view mode = argc > 2 ? argv[1] : "";
  const int count = argc > 2 ? std::atoi(argv[2]) : 0;
  if (mode == "threads" && argc == 5) {
    return Threads(count, std::atoi(argv[3]), argv[4]);
  }
  if (mode == "stacks") return Stacks(static_cast<uint64_t>(count));
  if (mode == "futex") return Futexes(count);
  return 2;
}
