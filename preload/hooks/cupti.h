// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_CUPTI_H_
#define DSTRACE_PRELOAD_HOOKS_CUPTI_H_

// DSTRACE_CUPTI=1: loads libdstrace_cupti.so when CUDA is up, and takes it out
// of the way when the program uses CUPTI itself.
//
// Thread-safety: thread-safe.

namespace dstrace::hooks {

// Call at the end of an outermost CUDA call that made a context, when none of
// CUDA's locks is held. Not under runtime::Guard: what CUPTI allocates for
// itself is memory like any other. Only the first call does anything.
void StartCupti() noexcept;

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_CUPTI_H_
