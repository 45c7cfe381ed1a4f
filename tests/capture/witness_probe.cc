// SPDX-License-Identifier: Apache-2.0
//
// What witness_python_test.py loads: each call is one event, whose answer is
// compared with a fresh unwind and a fresh reading of the Python frames.
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "preload/capture/session.h"
#include "preload/runtime/config.h"
#include "preload/runtime/guard.h"
#include "preload/stacks/native.h"
#include "preload/stacks/python.h"

#define PROBE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using dstrace::capture::Session;
using dstrace::capture::ThreadState;
using Stack = std::vector<uint64_t>;

struct Ledger {
  std::mutex mutex;
  std::map<Stack, uint32_t> id_of;
  std::map<uint32_t, Stack> stack_of;
  long events = 0;
  long wrong = 0;
};

Ledger& TheLedger() {
  static Ledger& ledger = *new Ledger;
  return ledger;
}

Stack Fresh() {
  std::vector<void*> pcs(ThreadState::kMaxNative);
  const int native =
      dstrace::stacks::CaptureNative(pcs.data(), ThreadState::kMaxNative);
  std::vector<dstrace::stacks::PyFrame> frames(ThreadState::kMaxPython);
  const int python = dstrace::stacks::CapturePython(
      frames.data(), ThreadState::kMaxPython, nullptr);
  Stack stack;
  for (int i = 0; i < native; ++i) {
    stack.push_back(reinterpret_cast<uintptr_t>(pcs[static_cast<size_t>(i)]));
  }
  for (int i = 0; i < python; ++i) {
    const auto& frame = frames[static_cast<size_t>(i)];
    stack.push_back(reinterpret_cast<uintptr_t>(frame.code));
    stack.push_back(frame.lasti);
    stack.push_back(uint64_t{frame.entry} << 8 | frame.empty_loops);
    stack.push_back(dstrace::stacks::CodeFingerprint(frame.code));
  }
  return stack;
}

}  // namespace

PROBE_EXPORT void probe_start() { dstrace::runtime::ReadConfig(); }

// One event.
PROBE_EXPORT int probe_event() {
  const dstrace::runtime::Guard guard;
  ThreadState* const state = Session::Get().Enter();
  if (state == nullptr) return 0;
  const uint32_t id =
      Session::Get().Stack(*state, dstrace::runtime::StackMode::kFull, nullptr);
  const Stack stack = Fresh();
  Ledger& ledger = TheLedger();
  const std::lock_guard lock(ledger.mutex);
  ++ledger.events;
  const bool same = ledger.id_of.emplace(stack, id).first->second == id &&
                    ledger.stack_of.emplace(id, stack).first->second == stack;
  if (id == 0 || !same) ++ledger.wrong;
  return 1;
}

// The same from inside of a callback's callback.
PROBE_EXPORT int probe_through(int (*callback)(int), int argument) {
  return callback(argument) + 1;
}

PROBE_EXPORT long probe_events() { return TheLedger().events; }
PROBE_EXPORT long probe_wrong() { return TheLedger().wrong; }
// Of the calling thread.
PROBE_EXPORT long probe_hits() {
  ThreadState* const state = Session::Get().Enter();
  return state == nullptr ? -1 : static_cast<long>(state->witnessed.hits());
}
