// SPDX-License-Identifier: Apache-2.0
//
// What an event costs that finds its code and data out of the caches, as the
// events of a training step do: before each, a walk through code and data of
// several times the size of the caches. Prints medians of torch's report
// through the hook and of the report alone, which take turns.
//
// usage: cold COUNT DEPTH [KIB]     run under the preload
//   KIB of data, and a third of it of code, are walked through (default 6144)
// From Python: load the library of this name and call cold_run(count, kib).

#include <sys/mman.h>
#include <x86intrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "tests/fakes/c10.h"

// The same, and nobody's hook.
extern "C" void bench_plain_report(void* block, int64_t size, size_t allocated,
                                   size_t reserved, c10::Device device);

namespace {

using Report = void (*)(void*, int64_t, size_t, size_t, c10::Device);

constexpr c10::Device kCuda0 = {1, 0};
constexpr uintptr_t kFirstBlock = 0x7f0000000000;
constexpr uint64_t kBlocks = 2048;
constexpr int64_t kBlockBytes = 512;
constexpr size_t kLine = 64;

class Eviction {
 public:
  explicit Eviction(size_t kib)
      : data_bytes_(kib << 10), code_bytes_((kib << 10) / 3 / kLine * kLine) {
    data_ = Map(data_bytes_, PROT_READ | PROT_WRITE);
    code_ = Map(code_bytes_, PROT_READ | PROT_WRITE | PROT_EXEC);
    std::memset(data_, 1, data_bytes_);
    for (size_t at = 0; at + kLine < code_bytes_; at += kLine) {
      const int32_t to_the_next_line = kLine - 5;
      code_[at] = 0xe9;  // jmp
      std::memcpy(code_ + at + 1, &to_the_next_line, sizeof to_the_next_line);
    }
    code_[code_bytes_ - kLine] = 0xc3;  // ret
  }
  ~Eviction() {
    munmap(data_, data_bytes_);
    munmap(code_, code_bytes_);
  }
  Eviction(const Eviction&) = delete;
  Eviction& operator=(const Eviction&) = delete;

  void Run() const {
    const volatile uint8_t* const data = data_;
    for (size_t at = 0; at < data_bytes_; at += kLine) (void)data[at];
    reinterpret_cast<void (*)()>(code_)();
  }

 private:
  static uint8_t* Map(size_t bytes, int protection) {
    void* const memory =
        mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("cold: mmap");
      std::exit(2);
    }
    madvise(memory, bytes, MADV_NOHUGEPAGE);  // pages are lost too
    return static_cast<uint8_t*>(memory);
  }

  const size_t data_bytes_;
  const size_t code_bytes_;
  uint8_t* data_;
  uint8_t* code_;
};

uint64_t Nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(now.tv_nsec);
}

double TicksPerNanosecond() {
  const uint64_t begin = Nanoseconds();
  const uint64_t ticks = __rdtsc();
  while (Nanoseconds() - begin < 20'000'000) {
  }
  return static_cast<double>(__rdtsc() - ticks) /
         static_cast<double>(Nanoseconds() - begin);
}

// Ticks of one report, all of it and nothing else.
[[gnu::noinline]] uint64_t Timed(Report report, uintptr_t block, int64_t size,
                                 size_t allocated) {
  unsigned processor;
  _mm_lfence();
  const uint64_t begin = __rdtsc();
  _mm_lfence();
  report(reinterpret_cast<void*>(block), size, allocated, size_t{2} << 20,
         kCuda0);
  _mm_lfence();
  return __rdtscp(&processor) - begin;
}

double Median(std::vector<uint64_t>& values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : static_cast<double>(values[values.size() / 2]);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void cold_run(long count,
                                                                long kib) {
  const Eviction eviction(static_cast<size_t>(kib));
  const double ticks = TicksPerNanosecond();
  const Report reports[] = {&c10::reportMemoryUsageToProfiler,
                            &bench_plain_report};
  std::vector<uint64_t> allocs[2], frees[2];
  for (long i = 0; i < count; ++i) {
    const uintptr_t block =
        kFirstBlock + static_cast<uintptr_t>(i) * 7919 % kBlocks * kBlockBytes;
    for (int which = 0; which < 2; ++which) {
      eviction.Run();
      allocs[which].push_back(
          Timed(reports[which], block, kBlockBytes, kBlockBytes));
      eviction.Run();
      frees[which].push_back(Timed(reports[which], block, -kBlockBytes, 0));
    }
  }
  std::printf(
      "alloc %.0f ns (report alone %.0f), free %.0f ns (report alone %.0f)\n",
      Median(allocs[0]) / ticks, Median(allocs[1]) / ticks,
      Median(frees[0]) / ticks, Median(frees[1]) / ticks);
  std::fflush(stdout);
}

namespace {

[[gnu::noinline]] void AtDepth(int depth, long count, long kib) {
  if (depth > 0) {
    AtDepth(depth - 1, count, kib);
  } else {
    cold_run(count, kib);
  }
  asm volatile("");  // keeps the calls from becoming jumps
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: cold COUNT DEPTH [KIB]\n");
    return 2;
  }
  AtDepth(std::atoi(argv[2]), std::atol(argv[1]),
          argc == 4 ? std::atol(argv[3]) : 6144);
  return 0;
}
