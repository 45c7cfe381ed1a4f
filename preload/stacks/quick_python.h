// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_QUICK_PYTHON_H_
#define DSTRACE_PRELOAD_STACKS_QUICK_PYTHON_H_

// The calling thread's innermost Python frame without a call.
//
// PyGILState_GetThisThreadState() ends in pthread_getspecific(): four functions
// in three libraries, some fifteen cache lines, for one word of the thread's
// own descriptor. Once an interpreter is checked, its key is looked up in
// _PyRuntime, the word is found by experiment, and both are held against what
// the call says. Where that fails in any point, or later the interpreter's key
// is no longer this one (a child of fork(), an interpreter that has ended) or
// it is shutting down, the caller asks the slow way.
//
// Internal to the stacks room. Thread-safe.

#include <atomic>
#include <cstdint>

#include "preload/stacks/python_runtime.h"

namespace dstrace::stacks {

struct alignas(64) QuickPython {
  // Written last. release: pairs with the acquire in QuickTopFrame().
  std::atomic<bool> usable;
  bool has_cframe;
  uint16_t thread_frame;
  uint16_t cframe_frame;
  uintptr_t slot;        // of the key's value, from the thread's descriptor on
  uintptr_t finalizing;  // address in _PyRuntime: 0, or who ends it
  uintptr_t key_at;      // address in _PyRuntime: {is_initialized, key}
  uint64_t key;          // what it must be
  const PyLayout* layout;
};
extern constinit QuickPython g_quick_python;

// By the one thread that has just found the layout to be right.
void LearnQuickPython(const PythonRuntime& python) noexcept;

namespace internal {

// A word of the thread's descriptor, which %fs points to.
inline uintptr_t ThreadWord(uintptr_t offset) noexcept {
  uintptr_t word;
  asm volatile("movq %%fs:(%1), %0" : "=r"(word) : "r"(offset));
  return word;
}

}  // namespace internal

// False: not known this way. `*frame` is 0 where the thread runs no Python.
inline bool QuickTopFrame(uintptr_t* frame) noexcept {
  const QuickPython& quick = g_quick_python;
  // acquire: pairs with the release in LearnQuickPython().
  if (__builtin_expect(!quick.usable.load(std::memory_order_acquire), 0)) {
    return false;
  }
  const uint64_t changed = Load<uintptr_t>(quick.finalizing) |
                           (Load<uint64_t>(quick.key_at) ^ quick.key);
  if (__builtin_expect(changed != 0, 0)) return false;
  const uintptr_t thread_state = internal::ThreadWord(quick.slot);
  *frame = 0;
  if (thread_state == 0) return true;
  *frame = Load<uintptr_t>(thread_state + quick.thread_frame);
  if (quick.has_cframe && *frame != 0) {
    *frame = Load<uintptr_t>(*frame + quick.cframe_frame);
  }
  return true;
}

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_QUICK_PYTHON_H_
