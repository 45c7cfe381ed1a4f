// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/stack_capture.h"

#include <cstring>

#include "preload/stacks/native.h"
#include "preload/stacks/stack_witness.h"
#include "preload/stacks/witness_cache.h"

namespace dstrace::capture {
namespace {

using WitnessKey = stacks::WitnessCache::Key;

struct PythonPart {
  int count;
  bool truncated;
  Key key;
};

// Two words a frame: where it is, and what the code object there is at this
// instant (code objects come and go, their addresses stay).
PythonPart TakePython(ThreadState& thread, uint64_t generation) noexcept {
  PythonPart part;
  part.count = stacks::CapturePython(thread.python, ThreadState::kMaxPython,
                                     &part.truncated);
  stacks::CodeFingerprints(thread.python, part.count, thread.prints);
  uint64_t* word = thread.words;
  for (int i = 0; i < part.count; ++i) {
    const stacks::PyFrame& frame = thread.python[i];
    *word++ = reinterpret_cast<uintptr_t>(frame.code) ^
              frame.lasti * 0x9E3779B97F4A7C15u;
    *word++ = thread.prints[i] + frame.entry + 2 * uint64_t{frame.empty_loops};
  }
  part.key =
      HashWords({thread.words, static_cast<size_t>(word - thread.words)},
                generation ^ static_cast<uint64_t>(part.truncated) << 48);
  return part;
}

Key StackKey(ThreadState& thread, const Key& python, int native) noexcept {
  const auto count = static_cast<size_t>(native);
  thread.words[0] = python.low;
  thread.words[1] = python.high;
  std::memcpy(thread.words + 2, thread.native, count * sizeof(void*));
  return HashWords({thread.words, 2 + count}, count);
}

uint32_t FindOrDefine(Definitions& definitions, ThreadState& thread,
                      const Key& key, const PythonPart& python, int native,
                      bool* was_known) noexcept {
  const uint32_t known = thread.stacks.Find(key);
  *was_known = known != 0;
  if (known != 0) return known;
  const int frames =
      stacks::Merge(thread.native, native, thread.python, python.count,
                    thread.merged, ThreadState::kMaxFrames);
  const bool truncated = python.truncated || native == ThreadState::kMaxNative;
  const uint32_t id = definitions.Stack(thread, key, frames, truncated);
  if (id != 0) thread.stacks.Add(key, id);
  return id;
}

// Unwinds. A stack that is met again gets a witness.
[[gnu::noinline]] uint32_t Unwind(Definitions& definitions, ThreadState& thread,
                                  const PythonPart& python, const void* frame,
                                  const WitnessKey& place) noexcept {
  const int native =
      stacks::CaptureNative(thread.native, ThreadState::kMaxNative);
  const Key key = StackKey(thread, python.key, native);
  bool was_known = false;
  const uint32_t id =
      FindOrDefine(definitions, thread, key, python, native, &was_known);
  if (was_known && native < ThreadState::kMaxNative &&
      thread.witnessed.PayForWitness() &&
      stacks::RecordWitness(frame, thread.native, native, &thread.witness)) {
    thread.witnessed.Add(place, thread.witness, id);
  }
  return id;
}

[[gnu::noinline]] uint32_t PythonOnly(Definitions& definitions,
                                      ThreadState& thread,
                                      const void* caller) noexcept {
  const PythonPart python = TakePython(thread, definitions.generation());
  const auto pc = reinterpret_cast<uintptr_t>(caller);
  const Key key = {python.key.low ^ pc * 0x9E3779B97F4A7C15u,
                   python.key.high + pc};
  if (const uint32_t id = thread.stacks.Find(key); id != 0) return id;
  const int frames =
      stacks::MergePythonOnly(caller, thread.python, python.count,
                              thread.merged, ThreadState::kMaxFrames);
  const uint32_t id = definitions.Stack(thread, key, frames, python.truncated);
  if (id != 0) thread.stacks.Add(key, id);
  return id;
}

}  // namespace

// Not inlined: `frame` is where witnesses are measured from, and the frame
// address makes the compiler save the caller's frame pointer there.
[[gnu::noinline]] uint32_t CaptureStack(Definitions& definitions,
                                        ThreadState& thread,
                                        runtime::StackMode mode,
                                        const void* caller) noexcept {
  if (mode == runtime::StackMode::kNone) return 0;
  if (mode == runtime::StackMode::kPython) {
    return PythonOnly(definitions, thread, caller);
  }
  const void* const frame = __builtin_frame_address(0);
  const PythonPart python = TakePython(thread, definitions.generation());
  WitnessKey place = {
      python.key.low ^ reinterpret_cast<uintptr_t>(frame) * 0x9E3779B97F4A7C15u,
      python.key.high + reinterpret_cast<uintptr_t>(frame)};
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
