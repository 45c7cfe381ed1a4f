// SPDX-License-Identifier: Apache-2.0

// Composition root of libdstrace.so: the one file that knows every room.
//
// Loading does as little as can be: read a few environment variables. The log,
// the unwinder and the rest start at the first CUDA or torch event, so that the
// shells, compilers and data loaders that inherit LD_PRELOAD feel nothing.

#include <pthread.h>

#include "preload/capture/session.h"
#include "preload/hooks/deep_bind.h"
#include "preload/hooks/hooks.h"
#include "preload/runtime/config.h"
#include "preload/runtime/fork_gate.h"

namespace dstrace {
namespace {

void OnForkInChild() {
  runtime::ForkGate::AdoptChild();
  capture::Session::Get().AdoptChild();
  hooks::AdoptProcess();
}

__attribute__((constructor)) void OnLoad() {
  runtime::ReadConfig();
  hooks::AdoptProcess();
  hooks::OfferNvtx();
  // Registered early, so that other libraries' handlers, which may wait for
  // their threads, have run before the gate is closed.
  pthread_atfork(&runtime::ForkGate::CloseForFork,
                 &runtime::ForkGate::OpenInParent, &OnForkInChild);
}

// The loader takes us down before the driver, which was loaded later.
__attribute__((destructor)) void OnUnload() {
  hooks::TellDeepBind(true);
  hooks::StopQueries();
}

}  // namespace
}  // namespace dstrace
