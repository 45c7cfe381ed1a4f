// SPDX-License-Identifier: Apache-2.0
//
// Built twice, with and without frame pointers. Every kind of function lays its
// frame out in another way.
#include "tests/capture/call_tree.h"

#include <alloca.h>

#include <csignal>
#include <cstdlib>

namespace dstrace::tests {
namespace {

int Step(const TreeWalk& walk, size_t at);

// The other build's Step for bytes with the top bit, this one's for the others.
int Next(const TreeWalk& walk, size_t at) {
  const uint8_t byte = walk.program[at];
  return walk.steps[byte >> 7](walk, at + 1);
}

[[gnu::noinline]] int Plain(const TreeWalk& walk, size_t at) {
  // Two call sites that leave the stack pointer alike.
  int result = 0;
  if ((walk.program[at] & 0x40) != 0) {
    result = Next(walk, at);
    asm volatile("# first site");
  } else {
    result = Next(walk, at);
    asm volatile("# second site");
  }
  return result + 1;
}

// A frame whose size is known only at run time.
[[gnu::noinline]] int Alloca(const TreeWalk& walk, size_t at) {
  const size_t size = 16 + 16 * (walk.program[at] >> 3 & 7u);
  auto* const memory = static_cast<volatile char*>(alloca(size));
  memory[size - 1] = 1;
  return Next(walk, at) + memory[size - 1];
}

// Never written but for one byte: shows what other calls left there, return
// addresses among it.
[[gnu::noinline]] int Stale(const TreeWalk& walk, size_t at) {
  volatile char memory[3072];
  memory[17] = 1;
  return Next(walk, at) + memory[17];
}

// Realigns the stack, so that its caller's frame is found through a saved word.
[[gnu::noinline]] int Realigned(const TreeWalk& walk, size_t at, int a, int b,
                                int c, int d, int e, int f) {
  alignas(128) volatile char memory[256];
  const size_t size = 16 + (walk.program[at] & 0x38u);
  auto* const more = static_cast<volatile char*>(alloca(size));
  memory[a] = 1;
  more[size - 1] = 1;
  return Next(walk, at) + memory[a] + more[size - 1] + b + c + d + e + f;
}

// Through a library's function.
[[gnu::noinline]] int Sorted(const TreeWalk& walk, size_t at) {
  struct Item {
    const TreeWalk* walk;
    size_t at;
    int* result;
  };
  int result = 0;
  bool first = true;
  const Item items[2] = {{&walk, at, &result}, {&walk, at, &result}};
  const Item* order[2] = {&items[0], &items[1]};
  static thread_local bool* t_first = nullptr;
  bool* const outer = t_first;
  t_first = &first;
  qsort(order, 2, sizeof order[0], [](const void* a, const void*) {
    const Item& item = **static_cast<const Item* const*>(a);
    if (*t_first) {
      *t_first = false;
      *item.result = Next(*item.walk, item.at);
    }
    return 0;
  });
  t_first = outer;
  return result + 1;
}

// Keeps a pointer into its own frame in a register that callees save.
[[gnu::noinline]] int Pointing(const TreeWalk& walk, size_t at) {
  volatile int local[12] = {};
  volatile int* inside = &local[walk.program[at] >> 3 & 7];
  asm volatile("" : "+r"(inside));
  const int result = Next(walk, at);
  *inside = 1;
  return result + *inside;
}

// Many saved registers, their values different each time.
[[gnu::noinline]] int Busy(const TreeWalk& walk, size_t at) {
  static volatile unsigned long counter = 0;
  unsigned long a = counter, b = a * 3, c = a * 5, d = a * 7, e = a * 11,
                f = a * 13;
  counter = a + 1;
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
  const int result = Next(walk, at);
  asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
  return result + static_cast<int>((a ^ b ^ c ^ d ^ e ^ f) & 1);
}

struct Interrupted {
  const TreeWalk* walk;
  size_t at;
};
thread_local Interrupted t_interrupted;

void OnSignal(int) {
  const Interrupted here = t_interrupted;
  Next(*here.walk, here.at);
}

// Goes on inside of a signal handler.
[[gnu::noinline]] int Interrupt(const TreeWalk& walk, size_t at) {
  const Interrupted outer = t_interrupted;
  t_interrupted = {&walk, at};
#ifdef DSTRACE_TREE_WITHOUT_SIGNALS
  OnSignal(0);
#else
  raise(DSTRACE_TREE_SIGNUM);
#endif
  t_interrupted = outer;
  return 1;
}

int Step(const TreeWalk& walk, size_t at) {
  if (at == walk.length) {
    walk.leaf(walk.argument);
    return 0;
  }
  switch (walk.program[at] % kTreeKinds) {
    case 0:
      return Alloca(walk, at) + 1;
    case 1:
      return Stale(walk, at) + 1;
    case 2:
      return Realigned(walk, at, walk.program[at] & 63, 1, 2, 3, 4, 5) + 1;
    case 3:
      return Sorted(walk, at) + 1;
    case 4:
      return Pointing(walk, at) + 1;
    case 5:
      return Busy(walk, at) + 1;
    case 6:
      // Rarely, and so not on most stacks.
      return (walk.program[at] >> 3) % 8 == 0 ? Interrupt(walk, at) + 1
                                              : Plain(walk, at) + 1;
    default:
      return Plain(walk, at) + 1;
  }
}

// The two below take the same place on the stack whether their caller's frame
// is larger and theirs smaller or the other way round. What they leave
// untouched then still holds the return address of the call before, just where
// it was.

[[gnu::noinline]] int GrownCallee(const TreeWalk& walk, size_t bytes) {
  asm volatile("" : : "r"(alloca(bytes)));
  walk.leaf(walk.argument);
  return 1;
}

// Realignment swallows the difference.
[[gnu::noinline]] int RealignedCallee(const TreeWalk& walk, size_t bytes) {
  alignas(128) char memory[128];
  asm volatile("" : : "r"(memory), "r"(alloca(bytes)));
  walk.leaf(walk.argument);
  return 1;
}

[[gnu::noinline]] int ShiftedCaller(const TreeWalk& walk,
                                    const TreeShift& shift,
                                    int (*callee)(const TreeWalk&, size_t)) {
  asm volatile("" : : "r"(alloca(shift.caller)));
  int result = 0;
  if (shift.second_site) {
    result = callee(walk, shift.callee);
    asm volatile("# second site");
  } else {
    result = callee(walk, shift.callee);
    asm volatile("# first site");
  }
  return result;
}

}  // namespace
}  // namespace dstrace::tests

extern "C" __attribute__((visibility("default"))) int DSTRACE_TREE_STEP(
    const dstrace::tests::TreeWalk& walk, size_t at) {
  return dstrace::tests::Step(walk, at) + 1;
}
// The handler of the signal that this build raises.
extern "C" __attribute__((visibility("default"))) void DSTRACE_TREE_SIGNAL(
    int number) {
  dstrace::tests::OnSignal(number);
}
extern "C" __attribute__((visibility("default"))) int DSTRACE_TREE_SHIFT(
    const dstrace::tests::TreeWalk& walk,
    const dstrace::tests::TreeShift& shift) {
  using namespace dstrace::tests;
  return ShiftedCaller(walk, shift,
                       shift.realigned ? &RealignedCallee : &GrownCallee) +
         1;
}
