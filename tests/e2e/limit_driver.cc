// SPDX-License-Identifier: Apache-2.0
//
// limit_driver EVENTS: that many allocations and frees of a training-like
// program on the fake torch: some blocks for ever, from different functions,
// the others short-lived. Prints what torch says is live, and its own largest
// resident size in KiB.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/fakes/fake_torch.h"
#include "tests/support/largest_resident.h"

// Outside the unnamed namespace: its name is in the dynamic symbol table, so
// stacks show it without debug files.
extern "C" [[gnu::noinline]] void* AllocateParameter(size_t bytes) {
  void* const block = fake_torch_malloc(bytes);
  asm volatile("" ::: "memory");  // no tail call: this frame is in the stack
  return block;
}

namespace {

constexpr size_t kForEver = 300;
constexpr size_t kDepth = 64;  // activations of a step

[[gnu::noinline]] void* AllocateActivation(size_t bytes) {
  void* const block = fake_torch_malloc(bytes);
  asm volatile("" ::: "memory");
  return block;
}

// A parameter is now and then replaced by a larger one.
void Step(uint64_t step, std::vector<void*>& parameters) {
  void* activations[kDepth];
  for (size_t i = 0; i < kDepth; ++i) {
    activations[i] = AllocateActivation(512 * (1 + (i * 7 + step) % 50));
  }
  for (size_t i = kDepth; i > 0; --i) fake_torch_free(activations[i - 1]);
  if (step % 1000 != 999) return;
  void*& parameter = parameters[step / 1000 % (parameters.size() / 2)];
  fake_torch_free(parameter);
  parameter = AllocateParameter(1024 + step % 4096 * 512);
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t events = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  std::vector<void*> parameters;
  for (size_t i = 0; i < kForEver; ++i) {
    parameters.push_back(AllocateParameter(512 * (i + 1)));
  }
  for (uint64_t step = 0; step < events / (2 * kDepth); ++step) {
    Step(step, parameters);
  }
  std::printf("%" PRIu64 " %ld\n", fake_torch_memory_allocated(),
              dstrace::testing::LargestResidentKib());
  return 0;
}
