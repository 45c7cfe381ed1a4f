// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_EXPORT_H_
#define DSTRACE_PRELOAD_HOOKS_EXPORT_H_

// Everything is compiled hidden; only what exports.map lists is let out.
#define DSTRACE_EXPORT __attribute__((visibility("default")))

#endif  // DSTRACE_PRELOAD_HOOKS_EXPORT_H_
