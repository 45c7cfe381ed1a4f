// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_MERGE_H_
#define DSTRACE_PRELOAD_STACKS_MERGE_H_

#include <cstdint>

#include "preload/stacks/python.h"

namespace dstrace::stacks {

struct Frame {
  enum class Kind : uint32_t { kNative, kPython };

  uintptr_t pc_or_code;  // return address, or PyCodeObject*
  uint32_t lasti;        // PyFrame::lasti; 0 for a native frame
  Kind kind;
};
static_assert(sizeof(Frame) == 16, "frames are hashed and compared as bytes");

// One stack, innermost first, of a native stack and the Python frames of the
// same instant. The interpreter's own native frames are left out; in the place
// of each of its evaluation loops stand the Python frames which that loop runs.
//
//   native            python        merged
//   cudaMalloc        .             cudaMalloc
//   at::empty         .             at::empty
//   cfunction_call    .             .
//   eval              f, g(entry)   f, g
//   slot_tp_call      .             .
//   apply (torch)     .             apply (torch)
//   eval              main(entry)   main
//
// Where the counts differ (a cut stack, code without a symbol) loops and runs
// are paired from the innermost on, and the Python frames left over follow the
// last loop. A Python frame is never lost before `max` is reached. Without
// Python frames the native stack is returned as it is.
//
// Returns the number of frames written.
// Thread-safety: any thread; the first call for an interpreter reads its symbol
// table (a few hundred microseconds). No heap, no locks, errno preserved.
int Merge(const void* const* pcs, int native_count, const PyFrame* python,
          int python_count, Frame* out, int max) noexcept;

// Python frames only, preceded by the innermost native return address (no
// unwinding): `caller` may be null.
int MergePythonOnly(const void* caller, const PyFrame* python, int python_count,
                    Frame* out, int max) noexcept;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_MERGE_H_
