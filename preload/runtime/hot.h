// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_HOT_H_
#define DSTRACE_PRELOAD_RUNTIME_HOT_H_

// Between two events of a training step the program runs through megabytes of
// code, so each event finds ours out of the caches: what it costs is the lines
// and pages it touches. Functions of every event carry DSTRACE_HOT and lie
// together; what is only called now and then carries DSTRACE_COLD, which also
// moves the way there out of its caller.

#define DSTRACE_HOT [[gnu::hot]]
#define DSTRACE_COLD [[gnu::noinline, gnu::cold]]

#endif  // DSTRACE_PRELOAD_RUNTIME_HOT_H_
