// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_EVAL_RANGES_H_
#define DSTRACE_PRELOAD_STACKS_EVAL_RANGES_H_

#include <cstdint>

namespace dstrace::stacks {

// Half-open.
struct CodeRange {
  uintptr_t start;
  uintptr_t end;

  bool Contains(uintptr_t pc) const noexcept {
    return pc - start < end - start;
  }
};

// The interpreter's code: the whole module and, within it, the parts of the
// evaluation loop.
struct InterpreterCode {
  static constexpr int kMaxParts = 8;

  CodeRange module;
  CodeRange parts[kMaxParts];
  int part_count;
};

// Null while no interpreter is known. The first call reads the module's symbol
// table from its file: compilers split rarely executed bytecodes off into
// "_PyEval_EvalFrameDefault.cold", which no dynamic symbol covers.
const InterpreterCode* FindInterpreterCode() noexcept;

// Whether the interpreter's code at `pc` belongs to the evaluation loop.
bool IsEvaluationLoop(const InterpreterCode& code, uintptr_t pc) noexcept;

// For interpreters without a symbol table (3.11+): finds out which functions on
// this thread's stack run evaluation loops, from the structures that such a
// loop keeps in its stack frame, and trusts what it learned more than symbol
// names from then on. Tens of microseconds; stops trying after a while. True if
// it learned something new.
bool LearnEvaluationLoops() noexcept;

// Adds the parts of `function` that the file's symbol table names
// "<function>.<suffix>". Does nothing where the file cannot be read, has no
// symbol table, or is not the one that is loaded (`function` elsewhere than at
// `expected_value`). Offsets are relative to the load address `base`.
void AddSplitParts(const char* path, const char* function,
                   uintptr_t expected_value, uintptr_t base,
                   InterpreterCode* code) noexcept;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_EVAL_RANGES_H_
