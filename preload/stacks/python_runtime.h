// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_PYTHON_RUNTIME_H_
#define DSTRACE_PRELOAD_STACKS_PYTHON_RUNTIME_H_

#include <cstdint>
#include <cstring>

#include "preload/runtime/hot.h"
#include "preload/stacks/python_layouts.h"

// Finding the interpreter and checking that it looks as its table says.
// Internal to the stacks room.

namespace dstrace::stacks {

struct PythonRuntime {
  alignas(64) PyLayout layout;
  uint32_t version_hex;
  uintptr_t runtime;       // _PyRuntime
  void* (*this_thread)();  // PyGILState_GetThisThreadState
  uintptr_t eval_frame;
  uintptr_t code_type;
  uintptr_t text_type;
  uintptr_t bytes_type;
};

// The interpreter, or null while there is none, or where its layout is unknown
// or failed its check. Cheap once found; while there is none it looks again
// only now and then, or after ModulesChanged().
DSTRACE_HOT const PythonRuntime* FindPython() noexcept;

// True once the layout passed its check. Until then CheckPython must be asked
// before frames are read.
bool PythonIsChecked() noexcept;

// Checks the layout against the frames of this thread with loads that cannot
// fault. False: this thread has no frame to check it with, or the check failed
// (then FindPython returns null from now on).
bool CheckPython(const PythonRuntime& python, uintptr_t thread_state) noexcept;

// The innermost frame of the calling thread; 0 where it runs no Python, or none
// that may be read.
DSTRACE_HOT uintptr_t ThisThreadsFrame(const PythonRuntime& python) noexcept;

// Addresses inside the C stack frames of this thread's evaluation loops,
// innermost first, of structures that the loop keeps in its own stack frame
// (3.11+; before there are none). Some may lie elsewhere.
int LoopAddresses(uintptr_t* out, int max) noexcept;

template <typename T>
inline T Load(uintptr_t address) noexcept {
  T value;
  memcpy(&value, reinterpret_cast<const void*>(address), sizeof(value));
  return value;
}

// The innermost frame of a thread.
inline uintptr_t TopFrame(const PyLayout& layout,
                          uintptr_t thread_state) noexcept {
  const auto frame = Load<uintptr_t>(thread_state + layout.thread_frame);
  if (!layout.has_cframe || frame == 0) return frame;
  return Load<uintptr_t>(frame + layout.cframe_frame);
}

// From 3.14 on references in frames carry tag bits; code objects are aligned.
inline constexpr uintptr_t kReferenceTags = 7;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_PYTHON_RUNTIME_H_
