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

// `caller`: a return address in the code that called the hook, for kPython.
// 0 where no stack was asked for or none could be written.
[[nodiscard]] uint32_t CaptureStack(Definitions& definitions,
                                    ThreadState& thread,
                                    runtime::StackMode mode,
                                    const void* caller) noexcept;

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_STACK_CAPTURE_H_
