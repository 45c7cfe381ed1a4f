// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_FIRST_USE_H_
#define DSTRACE_PRELOAD_HOOKS_FIRST_USE_H_

// Which kernels, modules and libraries were used before. CUDA loads code
// lazily and makes room for a kernel's local memory when it is first launched,
// so that is when the device loses memory that no allocation call explains.
//
// Thread-safety: thread-safe, no lock; a few nanoseconds where the key is
// known. Where the table is full nothing counts as new any more.

#include <cstdint>

namespace dstrace::hooks {

// True for the first caller with this key. 0 is never new.
bool IsFirstUse(uint64_t key) noexcept;

// Everything is new again: limits have changed.
void ForgetUses() noexcept;

// What `key` means may differ by device once there is a second context.
void NoteContext() noexcept;
bool HasManyContexts() noexcept;

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_FIRST_USE_H_
