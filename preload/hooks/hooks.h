// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_HOOKS_H_
#define DSTRACE_PRELOAD_HOOKS_HOOKS_H_

// What the composition root tells the hooks. The hooks themselves work from
// the first instruction of the process on and need none of it to forward.
//
// Thread-safety: each is called by one thread at a time.

namespace dstrace::hooks {

// This process is the one whose end the hooks report: when the library is
// loaded, and in a child of fork(). (A child of vfork() stays its parent's.)
void AdoptProcess() noexcept;

// The process is ending: from here on the driver, which may be gone already,
// is asked nothing more. Calls are still recorded and forwarded.
void StopQueries() noexcept;

// Makes this library the process's NVTX tool, unless the user named another.
void OfferNvtx() noexcept;

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_HOOKS_H_
