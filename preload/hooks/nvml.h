// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_NVML_H_
#define DSTRACE_PRELOAD_HOOKS_NVML_H_

// NVML, which can say how much of a device is in use before this process has a
// context there: cuMemGetInfo cannot. Only differences of its answers are of
// use here, as it counts more than cuMemGetInfo does.
//
// Where libnvidia-ml.so.1 is missing or does not know the device (MIG), nothing
// is known. The library stays loaded once it was opened.

#include <cstdint>
#include <optional>

#include "preload/hooks/cuda_abi.h"

namespace dstrace::hooks {

// Bytes in use on `device`, by whomever. Takes some milliseconds: to be called
// around the creation of a context only. Thread-safety: thread-safe. Call
// under runtime::Guard.
std::optional<uint64_t> NvmlUsedBytes(CUdevice device) noexcept;

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_NVML_H_
