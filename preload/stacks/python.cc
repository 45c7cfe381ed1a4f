// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/python.h"

#include <cerrno>

#include "preload/stacks/line_table.h"
#include "preload/stacks/python_runtime.h"
#include "preload/stacks/python_text.h"

namespace dstrace::stacks {
namespace {

constexpr uint32_t kMaxSkippedLoops = 255;

// Collects frames; knows when the array is full.
struct Collector {
  PyFrame* out;
  int max;
  int count = 0;
  uint32_t empty_loops = 0;

  bool Full() const noexcept { return count == max; }

  void Add(uintptr_t code, uint32_t lasti, bool entry) noexcept {
    const auto loops =
        empty_loops < kMaxSkippedLoops ? empty_loops : kMaxSkippedLoops;
    out[count++] = {reinterpret_cast<const void*>(code), lasti, entry,
                    static_cast<uint8_t>(loops)};
    empty_loops = 0;
  }

  // The frame added last was the outermost of its evaluation loop; without one
  // since the last mark, that loop runs nothing at this instant.
  void EndLoop() noexcept {
    if (count > 0 && !out[count - 1].entry && empty_loops == 0) {
      out[count - 1].entry = true;
    } else {
      ++empty_loops;
    }
  }
};

uint32_t ToOffset(intptr_t bytes) noexcept {
  return bytes < 0 ? PyFrame::kNotStarted : static_cast<uint32_t>(bytes);
}

// The walkers take the layout by value: stores to the frames could change one
// that is reached through a reference, so its offsets would be read again for
// each frame.

// 3.8-3.10. Returns whether frames were left over.
bool WalkFrameObjects(const PyLayout layout, uintptr_t frame,
                      Collector* frames) noexcept {
  const uint32_t scale = layout.instruction_scale;
  for (; frame != 0; frame = Load<uintptr_t>(frame + layout.frame_previous)) {
    if (frames->Full()) return true;
    const auto code = Load<uintptr_t>(frame + layout.frame_code);
    const auto index = Load<int32_t>(frame + layout.frame_instruction);
    frames->Add(code, ToOffset(intptr_t{index} * scale), true);
  }
  return false;
}

// 3.11.
bool WalkFlaggedFrames(const PyLayout layout, uintptr_t frame,
                       Collector* frames) noexcept {
  for (; frame != 0; frame = Load<uintptr_t>(frame + layout.frame_previous)) {
    if (frames->Full()) return true;
    const auto code = Load<uintptr_t>(frame + layout.frame_code);
    const auto instruction = Load<uintptr_t>(frame + layout.frame_instruction);
    const bool entry = Load<uint8_t>(frame + layout.frame_entry) != 0;
    const uintptr_t bytecode = code + layout.code_bytecode;
    frames->Add(code, ToOffset(static_cast<intptr_t>(instruction - bytecode)),
                entry);
  }
  return false;
}

// Free-threaded 3.14+ gives each thread its own copy of the bytecode.
uintptr_t Bytecode(const PyLayout& layout, uintptr_t frame,
                   uintptr_t code) noexcept {
  if (__builtin_expect(layout.code_copies == 0, 1))
    return code + layout.code_bytecode;
  const auto index = Load<int32_t>(frame + layout.frame_bytecode_index);
  const auto copies = Load<uintptr_t>(code + layout.code_copies);
  if (copies == 0 || index <= 0 || index >= Load<intptr_t>(copies)) {
    return code + layout.code_bytecode;
  }
  return Load<uintptr_t>(copies + (1 + static_cast<uintptr_t>(index)) *
                                      sizeof(uintptr_t));
}

// The interpreter's own code runs under frames that it hides from tracebacks
// (the one that checks what __init__ returned); like a function that has not
// passed its prologue, they are before the first traceable instruction. Asked
// only for small offsets, since it touches another cache line of the code
// object.
bool IsHidden(const PyLayout& layout, uintptr_t frame, uintptr_t code,
              intptr_t lasti) noexcept {
  constexpr intptr_t kLongestPrologue = 64;
  constexpr uint8_t kOwnedByGenerator = 1;
  constexpr intptr_t kCodeUnit = 2;
  if (__builtin_expect(lasti >= kLongestPrologue, 1)) return false;
  if (Load<uint8_t>(frame + layout.frame_owner) == kOwnedByGenerator)
    return false;
  return lasti < kCodeUnit * Load<int32_t>(code + layout.code_first_traceable);
}

// 3.12+.
bool WalkShimmedFrames(const PyLayout layout, uintptr_t frame,
                       Collector* frames) noexcept {
  for (; frame != 0; frame = Load<uintptr_t>(frame + layout.frame_previous)) {
    if (Load<uint8_t>(frame + layout.frame_owner) >= kFirstShimOwner) {
      frames->EndLoop();
      continue;
    }
    const uintptr_t code =
        Load<uintptr_t>(frame + layout.frame_code) & ~kReferenceTags;
    const auto instruction = Load<uintptr_t>(frame + layout.frame_instruction);
    const auto lasti =
        static_cast<intptr_t>(instruction - Bytecode(layout, frame, code));
    if (IsHidden(layout, frame, code, lasti)) continue;
    if (frames->Full()) return true;
    frames->Add(code, ToOffset(lasti), false);
  }
  return false;
}

bool Walk(const PyLayout& layout, uintptr_t frame, Collector* frames) noexcept {
  switch (layout.frame_kind) {
    case FrameKind::kFrameObject:
      return WalkFrameObjects(layout, frame, frames);
    case FrameKind::kEntryFlag:
      return WalkFlaggedFrames(layout, frame, frames);
    case FrameKind::kShim:
      return WalkShimmedFrames(layout, frame, frames);
  }
  return false;
}

// While the interpreter shuts down, other threads' states are freed under them.
bool IsDoomed(const PythonRuntime& python, uintptr_t thread_state) noexcept {
  const auto finalizing =
      Load<uintptr_t>(python.runtime + python.layout.runtime_finalizing);
  return __builtin_expect(finalizing != 0, 0) && finalizing != thread_state;
}

constexpr uint64_t kFactors[] = {0x9e3779b97f4a7c15u, 0xd6e8feb86659fd93u,
                                 0xa0761d6478bd642fu, 0xe7037ed1a0b428dbu};

uint64_t Mix(uint64_t hash, uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

// The parts that identify a code object are combined by one multiplication each
// that does not wait for the one before.
inline uint64_t Fingerprint(const PyLayout& layout, const void* code,
                            TextMemo& memo) noexcept {
  if (code == nullptr) return 0;
  const auto address = reinterpret_cast<uintptr_t>(code);
  const auto name = Load<uintptr_t>(address + layout.code_name);
  const auto first_line = Load<uint32_t>(address + layout.code_first_line);
  uint64_t hash = name * kFactors[0] + first_line * kFactors[1];
  if (layout.code_version != 0) {
    // Given to each code object once; 0 when the counter is used up.
    const auto version = Load<uint32_t>(address + layout.code_version);
    if (__builtin_expect(version != 0, 1)) {
      return Mix(hash, version * kFactors[2]);
    }
  }
  const auto file = Load<uintptr_t>(address + layout.code_file);
  const uintptr_t text_hash = layout.text_length + sizeof(uintptr_t);
  hash += Load<uint64_t>(name + text_hash) * kFactors[2];
  hash += (file ^ TextIdentity(layout, file, memo)) * kFactors[3];
  // Two functions of one name, file and line still differ in their line tables.
  const auto lines = Load<uintptr_t>(address + layout.code_lines);
  return Mix(hash, lines + Load<uint64_t>(lines + layout.bytes_size));
}

}  // namespace

int CapturePython(PyFrame* out, int max, bool* truncated) noexcept {
  if (truncated != nullptr) *truncated = false;
  const PythonRuntime* python = FindPython();
  if (python == nullptr || max <= 0) return 0;
  const auto thread_state = reinterpret_cast<uintptr_t>(python->this_thread());
  if (thread_state == 0 || IsDoomed(*python, thread_state)) return 0;
  if (__builtin_expect(!PythonIsChecked(), 0) &&
      !CheckPython(*python, thread_state))
    return 0;
  Collector frames{out, max};
  const bool more =
      Walk(python->layout, TopFrame(python->layout, thread_state), &frames);
  if (truncated != nullptr) *truncated = more;
  if (!more && frames.count > 0) out[frames.count - 1].entry = true;
  return frames.count;
}

int LoopAddresses(uintptr_t* out, int max) noexcept {
  const PythonRuntime* python = FindPython();
  if (python == nullptr || !PythonIsChecked()) return 0;
  const auto thread_state = reinterpret_cast<uintptr_t>(python->this_thread());
  if (thread_state == 0 || IsDoomed(*python, thread_state)) return 0;
  const PyLayout& layout = python->layout;
  int count = 0;
  if (layout.frame_kind == FrameKind::kEntryFlag) {
    auto cframe = Load<uintptr_t>(thread_state + layout.thread_frame);
    for (; cframe != 0 && count < max;
         cframe = Load<uintptr_t>(cframe + layout.cframe_previous)) {
      out[count++] = cframe;
    }
  } else if (layout.frame_kind == FrameKind::kShim) {
    uintptr_t frame = TopFrame(layout, thread_state);
    for (; frame != 0 && count < max;
         frame = Load<uintptr_t>(frame + layout.frame_previous)) {
      if (Load<uint8_t>(frame + layout.frame_owner) >= kFirstShimOwner)
        out[count++] = frame;
    }
  }
  return count;
}

void CodeFingerprints(const PyFrame* frames, int count,
                      uint64_t* out) noexcept {
  const PythonRuntime* python = FindPython();
  if (python == nullptr) {
    for (int i = 0; i < count; ++i) out[i] = 0;
    return;
  }
  const PyLayout layout = python->layout;  // by value as in the walkers
  TextMemo memo;
  for (int i = 0; i < count; ++i) {
    out[i] = Fingerprint(layout, frames[i].code, memo);
  }
}

uint64_t CodeFingerprint(const void* code) noexcept {
  const PythonRuntime* python = FindPython();
  TextMemo memo;
  return python == nullptr ? 0 : Fingerprint(python->layout, code, memo);
}

bool DescribeFrame(const PyFrame& frame, PyCodeInfo* info) noexcept {
  info->name[0] = info->file[0] = '\0';
  info->first_line = info->line = 0;
  const PythonRuntime* python = FindPython();
  const auto code = reinterpret_cast<uintptr_t>(frame.code);
  if (python == nullptr || code == 0) return false;
  const PyLayout& layout = python->layout;
  if (Load<uintptr_t>(code + layout.object_type) != python->code_type)
    return false;
  const uint16_t name = layout.code_qualified_name != 0
                            ? layout.code_qualified_name
                            : layout.code_name;
  CopyText(*python, Load<uintptr_t>(code + name), info->name,
           sizeof(info->name));
  CopyText(*python, Load<uintptr_t>(code + layout.code_file), info->file,
           sizeof(info->file));
  info->first_line = Load<int32_t>(code + layout.code_first_line);
  if (frame.lasti == PyFrame::kNotStarted) {
    info->line = info->first_line;
    return true;
  }
  const auto table = Load<uintptr_t>(code + layout.code_lines);
  if (Load<uintptr_t>(table + layout.object_type) != python->bytes_type)
    return true;
  info->line = LineAt(
      layout.line_table,
      reinterpret_cast<const uint8_t*>(table + layout.bytes_data),
      Load<size_t>(table + layout.bytes_size), info->first_line, frame.lasti);
  return true;
}

}  // namespace dstrace::stacks
