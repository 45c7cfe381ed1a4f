// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_NATIVE_H_
#define DSTRACE_PRELOAD_STACKS_NATIVE_H_

// The native call stack of the calling thread.
//
// Thread-safety: every function may be called from any thread at any time,
// also while the dynamic loader runs; none holds a lock of ours, none touches
// the host's malloc. errno is preserved.

namespace dstrace::stacks {

// Pays the unwinder's first-use cost (milliseconds: it maps its pools and reads
// the unwind tables) and learns where our own code lies. Call it once at start,
// outside any hook.
void WarmUp() noexcept;

// Writes up to `max` return addresses, innermost first, and returns how many.
// Leading frames that lie in the module that contains this very function
// (libdstrace.so) are left out. Look an address up as `pc - 1`: a return
// address may already belong to the next function.
int CaptureNative(void** pcs, int max) noexcept;

// Tells that a module was loaded or unloaded: forgets the unwind information of
// code that may be gone and lets the search for Python look again.
void ModulesChanged() noexcept;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_NATIVE_H_
