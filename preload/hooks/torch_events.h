// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_TORCH_EVENTS_H_
#define DSTRACE_PRELOAD_HOOKS_TORCH_EVENTS_H_

// CUDA events recorded and polled by torch's caching allocator. A block freed
// while another stream may still use it is not reusable until the event which
// the allocator records for that stream, in the same thread just before the
// free is reported, has completed. Events of anybody else are not looked at:
// the return address tells.
//
// Thread-safety: thread-safe; two loads where the caller is not torch.

#include <cstdint>

namespace dstrace::hooks {

// True if `caller` is in the library that reported torch's first allocation.
bool IsTorchAllocator(const void* caller) noexcept;

// The library around `caller` is torch's allocator (libc10_cuda).
void LearnTorchAllocator(const void* caller) noexcept;

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_TORCH_EVENTS_H_
