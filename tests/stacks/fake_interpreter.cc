// SPDX-License-Identifier: Apache-2.0
#include "tests/stacks/fake_interpreter.h"

namespace dstrace::stacks {

FakeInterpreter g_fake_interpreter;

const InterpreterCode* FindInterpreterCode() noexcept {
  static InterpreterCode code;
  code.module = {FakeInterpreter::kLoop, FakeInterpreter::kEnd};
  return g_fake_interpreter.present ? &code : nullptr;
}

bool IsEvaluationLoop(const InterpreterCode&, uintptr_t pc) noexcept {
  const CodeRange hot{FakeInterpreter::kLoop, FakeInterpreter::kLoop + 256};
  const CodeRange cold{FakeInterpreter::kColdLoop,
                       FakeInterpreter::kColdLoop + 256};
  return hot.Contains(pc) ||
         (g_fake_interpreter.knows_cold_part && cold.Contains(pc));
}

bool LearnEvaluationLoops() noexcept {
  ++g_fake_interpreter.lessons;
  if (g_fake_interpreter.can_learn) g_fake_interpreter.knows_cold_part = true;
  return g_fake_interpreter.can_learn;
}

}  // namespace dstrace::stacks
