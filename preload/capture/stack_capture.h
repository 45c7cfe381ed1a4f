// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_STACK_CAPTURE_H_
#define DSTRACE_PRELOAD_CAPTURE_STACK_CAPTURE_H_

// The id of the calling thread's stack.
//
// A hit in the thread's cache takes no lock and writes nothing. A new stack is
// described frame by frame and written to the log first.
//
// Thread-safety: thread-safe for distinct `thread`.

#include <cstdint>

#include "preload/capture/definitions.h"
#include "preload/capture/thread_state.h"
#include "preload/runtime/config.h"

namespace dstrace::capture {

// With native frames. Not inlined: what is compared of the C stack begins at
// its frame.
[[nodiscard]] uint32_t CaptureFullStack(Definitions& definitions,
                                        ThreadState& thread) noexcept;
DSTRACE_COLD uint32_t DefinePythonStack(Definitions& definitions,
                                        ThreadState& thread, const Key& key,
                                        const void* caller) noexcept;

// What Python runs. Two stacks of the same words are different ones where the
// modules are.
inline Key TakePython(Definitions& definitions, ThreadState& thread) noexcept {
  const uint64_t generation = definitions.generation();
  const stacks::PythonChain::Key key = thread.chain.Take();
  return {key.low + generation * 0x9E3779B97F4A7C15u, key.high ^ generation};
}

// `caller`: a return address in the code that called the hook.
[[nodiscard]] inline uint32_t CapturePythonStack(Definitions& definitions,
                                                 ThreadState& thread,
                                                 const void* caller) noexcept {
  Key key = TakePython(definitions, thread);
  const auto pc = reinterpret_cast<uintptr_t>(caller);
  key.low ^= pc;  // both are halves of a hash
  key.high += pc;
  const uint32_t id = thread.stacks.Find(key);
  if (__builtin_expect(id != 0, 1)) return id;
  return DefinePythonStack(definitions, thread, key, caller);
}

// 0 where no stack was asked for or none could be written.
[[nodiscard]] inline uint32_t CaptureStack(Definitions& definitions,
                                           ThreadState& thread,
                                           runtime::StackMode mode,
                                           const void* caller) noexcept {
  if (mode == runtime::StackMode::kNone) return 0;
  return mode == runtime::StackMode::kPython
             ? CapturePythonStack(definitions, thread, caller)
             : CaptureFullStack(definitions, thread);
}

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_STACK_CAPTURE_H_
