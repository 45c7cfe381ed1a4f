// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_HOT_H_
#define DSTRACE_PRELOAD_RUNTIME_HOT_H_

// Between two events of a training step the program runs through megabytes of
// code, so each event finds ours out of the caches: what it costs is the lines
// and pages it touches. Functions of every event carry DSTRACE_HOT and lie
// together; what is only called now and then carries DSTRACE_COLD, which also
// moves the way there out of its caller.

#include <cstddef>

#define DSTRACE_HOT [[gnu::hot]]
#define DSTRACE_COLD [[gnu::noinline, gnu::cold]]

namespace dstrace::runtime {

// Sends for what will be needed soon. One miss after the other is what an event
// costs; asked for together they arrive together.
//
// always_inline: GCC takes a function that does nothing else for one without
// effect and drops the call. So for all that only pass on to these.
#define DSTRACE_PREFETCH [[gnu::always_inline]] inline

DSTRACE_PREFETCH void Prefetch(const void* data) noexcept {
  __builtin_prefetch(data, 1, 3);
}

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_HOT_H_
