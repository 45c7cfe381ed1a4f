// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_CAPTURE_CALL_TREE_H_
#define DSTRACE_TESTS_CAPTURE_CALL_TREE_H_

// Calls nested as a program of bytes says. Each byte picks a kind of function,
// one of its two call sites, a frame size, and whether the next call goes to
// the other build of the same code (with or without frame pointers).
//
// Thread-safety: thread-safe; a walk keeps everything on its own stack.

#include <cstddef>
#include <cstdint>

namespace dstrace::tests {

struct TreeWalk;
using TreeStep = int (*)(const TreeWalk& walk, size_t at);

struct TreeWalk {
  const uint8_t* program;
  size_t length;
  TreeStep steps[2];  // of the two builds
  void (*leaf)(void* argument);
  void* argument;
};

// One caller and one callee with frames of these extra bytes.
struct TreeShift {
  size_t caller;
  size_t callee;
  bool second_site;  // of the two calls in the caller
  bool realigned;    // the callee realigns its frame
};

inline constexpr int kTreeKinds = 8;

}  // namespace dstrace::tests

#endif  // DSTRACE_TESTS_CAPTURE_CALL_TREE_H_
