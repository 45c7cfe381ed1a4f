// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/python.h"

#include <cerrno>

#include "preload/stacks/line_table.h"
#include "preload/stacks/python_frame.h"
#include "preload/stacks/python_runtime.h"
#include "preload/stacks/python_text.h"

namespace dstrace::stacks {
namespace {

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
inline uint64_t Fingerprint(const PyLayout& layout, const void* code) noexcept {
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
  TextWitness file_text;
  file_text.Take(layout, file);
  hash += file_text.Sum() * kFactors[3];
  // Two functions of one name, file and line still differ in their line tables.
  const auto lines = Load<uintptr_t>(address + layout.code_lines);
  return Mix(hash, lines + Load<uint64_t>(lines + layout.bytes_size));
}

}  // namespace

uintptr_t ThisThreadsFrame(const PythonRuntime& python) noexcept {
  const auto thread_state = reinterpret_cast<uintptr_t>(python.this_thread());
  if (thread_state == 0 || IsDoomed(python, thread_state)) return 0;
  if (__builtin_expect(!PythonIsChecked(), 0) &&
      !CheckPython(python, thread_state)) {
    return 0;
  }
  return TopFrame(python.layout, thread_state);
}

int CapturePython(PyFrame* out, int max, bool* truncated) noexcept {
  bool more = false;
  int count = 0;
  const PythonRuntime* python = FindPython();
  if (python != nullptr && max > 0) {
    const PyLayout& layout = python->layout;
    FrameCollector frames(out, max);
    for (uintptr_t frame = ThisThreadsFrame(*python); frame != 0 && !more;
         frame = Load<uintptr_t>(frame + layout.frame_previous)) {
      more = !frames.Add(ReadFrame(layout, frame));
    }
    count = frames.Finish(more);
  }
  if (truncated != nullptr) *truncated = more;
  return count;
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

uint64_t CodeFingerprint(const void* code) noexcept {
  const PythonRuntime* python = FindPython();
  return python == nullptr ? 0 : Fingerprint(python->layout, code);
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
