// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/stack_capture.h"

#include <cstring>

#include "preload/runtime/guard.h"
#include "preload/runtime/hot.h"
#include "preload/stacks/native.h"
#include "preload/stacks/stack_witness.h"
#include "preload/stacks/witness_cache.h"

namespace dstrace::capture {
namespace {

using WitnessKey = stacks::WitnessCache::Key;

Key StackKey(ThreadState& thread, const Key& python, int native) noexcept {
  const auto count = static_cast<size_t>(native);
  thread.words[0] = python.low;
  thread.words[1] = python.high;
  std::memcpy(thread.words + 2, thread.native, count * sizeof(void*));
  return HashWords({thread.words, 2 + count}, count);
}

DSTRACE_COLD uint32_t Define(Definitions& definitions, ThreadState& thread,
                             const Key& key, int native) noexcept {
  const runtime::KeepErrno keep_errno;
  bool truncated = false;
  const int python =
      thread.chain.Frames(thread.python, ThreadState::kMaxPython, &truncated);
  const int frames = stacks::Merge(thread.native, native, thread.python, python,
                                   thread.merged, ThreadState::kMaxFrames);
  truncated |= native == ThreadState::kMaxNative;
  const uint32_t id = definitions.Stack(thread, key, frames, truncated);
  if (id != 0) thread.stacks.Add(key, id);
  return id;
}

// Unwinds. A stack that is met again gets a witness.
DSTRACE_COLD uint32_t Unwind(Definitions& definitions, ThreadState& thread,
                             const Key& python, const void* frame,
                             const WitnessKey& place) noexcept {
  const runtime::KeepErrno keep_errno;
  const int native =
      stacks::CaptureNative(thread.native, ThreadState::kMaxNative);
  const Key key = StackKey(thread, python, native);
  const uint32_t known = thread.stacks.Find(key);
  if (known == 0) return Define(definitions, thread, key, native);
  if (native < ThreadState::kMaxNative && thread.witnessed.PayForWitness() &&
      stacks::RecordWitness(frame, thread.native, native, &thread.witness)) {
    thread.witnessed.Add(place, thread.witness, known);
  }
  return known;
}

}  // namespace

uint32_t DefinePythonStack(Definitions& definitions, ThreadState& thread,
                           const Key& key, const void* caller) noexcept {
  const runtime::KeepErrno keep_errno;
  bool truncated = false;
  const int count =
      thread.chain.Frames(thread.python, ThreadState::kMaxPython, &truncated);
  const int frames = stacks::MergePythonOnly(
      caller, thread.python, count, thread.merged, ThreadState::kMaxFrames);
  const uint32_t id = definitions.Stack(thread, key, frames, truncated);
  if (id != 0) thread.stacks.Add(key, id);
  return id;
}

// Not inlined: `frame` is where witnesses are measured from, and the frame
// address makes the compiler save the caller's frame pointer there.
DSTRACE_HOT [[gnu::noinline]] uint32_t CaptureFullStack(
    Definitions& definitions, ThreadState& thread) noexcept {
  const void* const frame = __builtin_frame_address(0);
  const Key python = TakePython(definitions, thread);
  WitnessKey place = {
      python.low ^ reinterpret_cast<uintptr_t>(frame) * 0x9E3779B97F4A7C15u,
      python.high + reinterpret_cast<uintptr_t>(frame)};
  // The frame's low bits say little: spread the others over the table.
  place.low ^= place.low >> 29;
  if (const uint32_t id = thread.witnessed.Find(&place, frame); id != 0) {
    return id;
  }
  const uint32_t id = Unwind(definitions, thread, python, frame, place);
  asm volatile("");  // no tail call: `frame` must be on the stack meanwhile
  return id;
}

}  // namespace dstrace::capture
