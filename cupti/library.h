// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_CUPTI_LIBRARY_H_
#define DSTRACE_CUPTI_LIBRARY_H_

// CUPTI itself, found at run time: nothing of ours links it.
//
// Thread-safety: one thread at a time.

#include "cupti/cupti_abi.h"
#include "preload/capture/cupti_seam.h"

namespace dstrace::cupti {

// The CUPTI that the process has loaded already (the program's own profiler
// uses that one), else the one that belongs to the loaded CUDA runtime, else
// the newest there is. False: none, or one that lacks a function; `*why` then
// says so.
[[nodiscard]] bool LoadCupti(const DstraceCuptiHost& host, Functions* functions,
                             const char** why) noexcept;

}  // namespace dstrace::cupti

#endif  // DSTRACE_CUPTI_LIBRARY_H_
