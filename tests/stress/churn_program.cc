// SPDX-License-Identifier: Apache-2.0
//
// churn_program ROUNDS LIBRARY_A LIBRARY_B: loads one library, allocates from
// its code, unloads it, and so on with the other one; a second thread allocates
// from code that stays. A's sizes are 1, 3, 5, ... times 512, B's 2, 4, ...
// Prints how often B lay where A had just been.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

extern "C" int cudaMalloc(void** pointer, size_t size);

// Not in the unnamed namespace: its name is to be in the trace.
extern "C" [[gnu::noinline]] void ChurnStays(size_t size) {
  void* pointer = nullptr;
  cudaMalloc(&pointer, size);
  asm volatile("");  // no tail call
}

namespace {

constexpr size_t kUnit = 512;
constexpr size_t kStays = 333 * 1000 * kUnit + 7;

using Outer = void (*)(size_t, uint64_t);

// Where the function was.
Outer LoadAndCall(const char* path, const char* name, size_t number) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::exit(3);
  const auto outer = reinterpret_cast<Outer>(dlsym(library, name));
  if (outer == nullptr) std::exit(4);
  // More than once, so that every cache there is has it.
  for (int i = 0; i < 3; ++i) {
    outer(kUnit * number, 0x7f0000000000 + (number * 4 + i) * kUnit);
  }
  if (dlclose(library) != 0) std::exit(5);
  return outer;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const size_t rounds = std::strtoul(argv[1], nullptr, 10);
  std::atomic<size_t> round{0};
  std::thread stays([&round, rounds] {
    // relaxed: only the number itself matters.
    for (size_t seen = 0; seen < rounds;) {
      ChurnStays(kStays);
      round.wait(seen, std::memory_order_relaxed);
      seen = round.load(std::memory_order_relaxed);
    }
  });
  size_t reused = 0;
  for (size_t i = 0; i < rounds; ++i) {
    const Outer a = LoadAndCall(argv[2], "ChurnOuterA", 2 * i + 1);
    const Outer b = LoadAndCall(argv[3], "ChurnOuterB", 2 * i + 2);
    reused += a == b;
    round.store(i + 1, std::memory_order_relaxed);
    round.notify_one();
  }
  stays.join();
  std::printf("%zu\n", reused);
  return 0;
}
