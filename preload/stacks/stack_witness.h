// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_STACK_WITNESS_H_
#define DSTRACE_PRELOAD_STACKS_STACK_WITNESS_H_

// The words of a stack that decide what unwinding it yields.
//
// An unwinder is a function of the registers it starts with and of the words it
// reads on its way. A witness holds those words, in the order of reading:
//
//   frame + 8    return address of the function that owns `frame`
//   frame + 0    a saved register that the next step's CFA is computed from
//   ...          only where it is: code without frame pointers has none
//   frame + 72   return address
//   ...
//
// If a later stack has the same `frame` and the same words, then by induction
// over the steps it unwinds to the same return addresses: the n-th step starts
// in the same code with the same registers, applies the same rule and so reads
// the same places, which hold the same words. Code at an address must be the
// same code: forget all witnesses when a module is unloaded.
//
// Reading the places in order, and stopping at the first that differs, is safe
// on any stack (fibers, sigaltstack, a mapping that was replaced): each place
// is one that an unwinder would read of the present stack.
//
// Thread-safety: each function reads the calling thread's own stack. No locks
// of ours, no heap, errno preserved.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dstrace::stacks {

struct StackWitness {
  static constexpr int kMaxWords = 320;
  static constexpr int kMaxFrames = 256;

  int count;
  uint32_t offsets[kMaxWords];  // from `frame`, in words
  uint64_t words[kMaxWords];
  void* pcs[kMaxFrames];  // scratch of RecordWitness
};

// Describes the stack above `frame`, which must be __builtin_frame_address(0)
// of a function that is still running. `pcs` are the outermost `count` return
// addresses as CaptureNative gave them. False where no witness can be given:
// frames without unwind information, signal frames, a stack that is too deep,
// or an unwind that disagrees with `pcs`. Tens of microseconds.
[[nodiscard]] bool RecordWitness(const void* frame, void* const* pcs, int count,
                                 StackWitness* witness) noexcept;

// Index of the first of `count` words that the stack above `frame` does not
// hold, `count` if it holds all; `*found` is what stands there instead.
// Not instrumented: it reads places that no variable owns.
__attribute__((no_sanitize("address", "thread"))) inline uint32_t FirstMismatch(
    const void* frame, const uint32_t* offsets, const uint64_t* words,
    uint32_t count, uint64_t* found) noexcept {
  const auto* const base = static_cast<const uint64_t*>(frame);
#pragma GCC unroll 4
  for (uint32_t i = 0; i < count; ++i) {
    // volatile: a word must not be read before the ones before it are known to
    // be right.
    const uint64_t word =
        *static_cast<const volatile uint64_t*>(base + offsets[i]);
    if (__builtin_expect(word != words[i], 0)) {
      *found = word;
      return i;
    }
  }
  return count;
}

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_STACK_WITNESS_H_
