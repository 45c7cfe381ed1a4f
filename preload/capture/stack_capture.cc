// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/stack_capture.h"

#include <cstring>

#include "preload/stacks/native.h"

namespace dstrace::capture {
namespace {

struct Taken {
  int native = 0;
  int python = 0;
  bool truncated = false;
};

Taken Take(ThreadState& thread, runtime::StackMode mode,
           const void* caller) noexcept {
  Taken taken;
  taken.python = stacks::CapturePython(thread.python, ThreadState::kMaxPython,
                                       &taken.truncated);
  if (mode == runtime::StackMode::kPython) {
    thread.native[0] = const_cast<void*>(caller);
    taken.native = caller != nullptr ? 1 : 0;
    return taken;
  }
  taken.native = stacks::CaptureNative(thread.native, ThreadState::kMaxNative);
  taken.truncated |= taken.native == ThreadState::kMaxNative;
  return taken;
}

// Two words a Python frame: where it is, and what the code object there is at
// this instant (code objects come and go, their addresses stay).
Key MakeKey(ThreadState& thread, const Taken& taken, uint64_t seed) noexcept {
  uint64_t* word = thread.words;
  for (int i = 0; i < taken.python; ++i) {
    const stacks::PyFrame& frame = thread.python[i];
    *word++ = reinterpret_cast<uintptr_t>(frame.code) ^
              frame.lasti * 0x9E3779B97F4A7C15u;
    *word++ = stacks::CodeFingerprint(frame.code) + frame.entry +
              2 * uint64_t{frame.empty_loops};
  }
  const auto native = static_cast<size_t>(taken.native);
  std::memcpy(word, thread.native, native * sizeof(void*));
  word += native;
  return HashWords({thread.words, static_cast<size_t>(word - thread.words)},
                   seed ^ static_cast<uint64_t>(taken.python) << 32 ^
                       static_cast<uint64_t>(taken.truncated) << 48);
}

}  // namespace

uint32_t CaptureStack(Definitions& definitions, ThreadState& thread,
                      runtime::StackMode mode, const void* caller) noexcept {
  if (mode == runtime::StackMode::kNone) return 0;
  const Taken taken = Take(thread, mode, caller);
  const Key key = MakeKey(thread, taken, definitions.generation());
  if (const uint32_t id = thread.stacks.Find(key); id != 0) return id;
  const int frames =
      mode == runtime::StackMode::kPython
          ? stacks::MergePythonOnly(caller, thread.python, taken.python,
                                    thread.merged, ThreadState::kMaxFrames)
          : stacks::Merge(thread.native, taken.native, thread.python,
                          taken.python, thread.merged, ThreadState::kMaxFrames);
  const uint32_t id = definitions.Stack(thread, key, frames, taken.truncated);
  if (id != 0) thread.stacks.Add(key, id);
  return id;
}

}  // namespace dstrace::capture
