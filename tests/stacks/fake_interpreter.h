// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_STACKS_FAKE_INTERPRETER_H_
#define DSTRACE_TESTS_STACKS_FAKE_INTERPRETER_H_

#include "preload/stacks/eval_ranges.h"

namespace dstrace::stacks {

// Stands in for eval_ranges.cc: an interpreter at made-up addresses.
struct FakeInterpreter {
  static constexpr uintptr_t kLoop = 0x1000;  // 256 bytes
  static constexpr uintptr_t kColdLoop = 0x1800;
  static constexpr uintptr_t kPlumbing = 0x1400;
  static constexpr uintptr_t kEnd = 0x2000;

  bool present = true;
  bool knows_cold_part = true;
  bool can_learn = false;  // LearnEvaluationLoops finds the cold part
  int lessons = 0;
};
extern FakeInterpreter g_fake_interpreter;

}  // namespace dstrace::stacks

#endif  // DSTRACE_TESTS_STACKS_FAKE_INTERPRETER_H_
