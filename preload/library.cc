// SPDX-License-Identifier: Apache-2.0

// Composition root of libdstrace.so: the one file that knows every room.
//
// Loading does as little as can be: read a few environment variables. The log,
// the unwinder and the rest start at the first CUDA or torch event, so that the
// shells, compilers and data loaders that inherit LD_PRELOAD feel nothing.

#include <pthread.h>

#include "preload/hooks/hooks.h"
#include "preload/runtime/config.h"

namespace dstrace {
namespace {

__attribute__((constructor)) void OnLoad() {
  runtime::ReadConfig();
  hooks::AdoptProcess();
  hooks::OfferNvtx();
  pthread_atfork(nullptr, nullptr, &hooks::AdoptProcess);
}

// The loader takes us down before the driver, which was loaded later.
__attribute__((destructor)) void OnUnload() { hooks::StopQueries(); }

}  // namespace
}  // namespace dstrace
