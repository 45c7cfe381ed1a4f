// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_TORCH_MODULE_H_
#define DSTRACE_PRELOAD_HOOKS_TORCH_MODULE_H_

// Which torch this process runs.
//
// Thread-safety: thread-safe. Call under runtime::Guard.

namespace dstrace::hooks {

// Records "torch.version", once, from the version.py that stands beside the
// lib/ folder of the library around `caller`. Silent where there is none.
void DescribeTorch(const void* caller) noexcept;

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_TORCH_MODULE_H_
