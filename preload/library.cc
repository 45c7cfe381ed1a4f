// SPDX-License-Identifier: Apache-2.0

// Composition root of libdstrace.so: the one file that knows every room.
//
// Loading does as little as can be: read a few environment variables. The log,
// the unwinder and the rest start at the first CUDA or torch event, so that the
// shells, compilers and data loaders that inherit LD_PRELOAD feel nothing.

#include "preload/runtime/config.h"

namespace dstrace {
namespace {

__attribute__((constructor)) void OnLoad() { runtime::ReadConfig(); }

}  // namespace
}  // namespace dstrace
