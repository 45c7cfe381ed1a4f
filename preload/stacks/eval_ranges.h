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
  static constexpr int kMaxParts = 6;

  CodeRange module;
  CodeRange parts[kMaxParts];
  int part_count;

  bool IsEvaluationLoop(uintptr_t pc) const noexcept {
    for (int i = 0; i < part_count; ++i) {
      if (parts[i].Contains(pc)) return true;
    }
    return false;
  }
};

// Null while no interpreter is known. The first call reads the module's symbol
// table from its file: compilers split rarely executed bytecodes off into
// "_PyEval_EvalFrameDefault.cold", which no dynamic symbol covers. Of a
// stripped interpreter only the hot part is known.
const InterpreterCode* FindInterpreterCode() noexcept;

// Adds the parts of `function` that the file's symbol table names
// "<function>.<suffix>". Does nothing where the file cannot be read, has no
// symbol table, or is not the one that is loaded (`function` elsewhere than at
// `expected_value`). Offsets are relative to the load address `base`.
void AddSplitParts(const char* path, const char* function,
                   uintptr_t expected_value, uintptr_t base,
                   InterpreterCode* code) noexcept;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_EVAL_RANGES_H_
