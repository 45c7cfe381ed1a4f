// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/python_layouts.h"

#include <cstring>

namespace dstrace::stacks {
namespace {

constexpr char kCookie[8] = {'x', 'd', 'e', 'b', 'u', 'g', 'p', 'y'};

// Positions of the published offsets, in 64-bit words from the start of
// _PyRuntime: cookie, version, free_threaded, then one group of words for each
// structure. Groups grow between minor versions, never between patch releases.
struct PublishedWords {
  int minor;
  uint16_t thread_key;  // in bytes, not published: see PyLayout
  uint8_t finalizing;
  uint8_t current_frame;
  uint8_t frame_previous;
  uint8_t frame_executable;
  uint8_t frame_instruction;
  uint8_t frame_owner;
  uint8_t frame_bytecode_index;  // 0: none
  uint8_t code_file;
  uint8_t code_name;
  uint8_t code_qualified_name;
  uint8_t code_lines;
  uint8_t code_first_line;
  uint8_t code_bytecode;
  uint8_t code_copies;  // 0: none
  uint8_t object_type;
  uint8_t bytes_size;
  uint8_t text_state;
};

// Group starts, 3.13: runtime 3, interpreter 6, thread 19, frame 28, code 34,
// object 44, type 46, tuple 50, list 53, dict 56, float 59, long 61, bytes 64,
// text 67.
// 3.14: runtime 3, interpreter 6, thread 22, frame 31, code 39, object 50,
// type 52, tuple 56, list 59, set 62, dict 66, float 69, long 71, bytes 74,
// text 77.
constexpr PublishedWords kPublished[] = {
    {.minor = 13,
     .thread_key = 2160,
     .finalizing = 4,
     .current_frame = 23,
     .frame_previous = 29,
     .frame_executable = 30,
     .frame_instruction = 31,
     .frame_owner = 33,
     .frame_bytecode_index = 0,
     .code_file = 35,
     .code_name = 36,
     .code_qualified_name = 37,
     .code_lines = 38,
     .code_first_line = 39,
     .code_bytecode = 43,
     .code_copies = 0,
     .object_type = 45,
     .bytes_size = 65,
     .text_state = 68},
    {.minor = 14,
     .thread_key = 2336,
     .finalizing = 4,
     .current_frame = 26,
     .frame_previous = 32,
     .frame_executable = 33,
     .frame_instruction = 34,
     .frame_owner = 36,
     .frame_bytecode_index = 38,
     .code_file = 40,
     .code_name = 41,
     .code_qualified_name = 42,
     .code_lines = 43,
     .code_first_line = 44,
     .code_bytecode = 48,
     .code_copies = 49,
     .object_type = 51,
     .bytes_size = 75,
     .text_state = 78},
};
constexpr size_t kPublishedSize = 81 * sizeof(uint64_t);

// Follows co_firstlineno after the counts of locals, frame size, cells and free
// variables, the same distance in every version that has it; not published.
constexpr uint16_t kVersionAfterFirstLine = 24;

// _co_firsttraceable stands before co_extra, the table of copies where there is
// one, and the bytecode; not published either.
constexpr uint16_t kFirstTraceableBeforeBytecode = 16;

class Words {
 public:
  explicit Words(const void* runtime) noexcept
      : runtime_(static_cast<const char*>(runtime)) {}

  uint64_t Raw(unsigned index) const noexcept {
    uint64_t word;
    memcpy(&word, runtime_ + index * sizeof(word), sizeof(word));
    return word;
  }

  uint16_t Offset(unsigned index) noexcept {
    const uint64_t word = Raw(index);
    if (word > kLargestOffset) valid_ = false;
    return static_cast<uint16_t>(word);
  }

  bool valid() const noexcept { return valid_; }

 private:
  // No structure we read is larger; anything above means another layout.
  static constexpr uint64_t kLargestOffset = 8192;

  const char* runtime_;
  bool valid_ = true;
};

std::optional<PyLayout> ReadPublished(const PublishedWords& at,
                                      const void* runtime) noexcept {
  Words words(runtime);
  PyLayout layout{};
  layout.minor = static_cast<uint8_t>(at.minor);
  layout.frame_kind = FrameKind::kShim;
  layout.line_table = LineTable::kLocations;
  layout.instruction_scale = 1;
  layout.runtime_finalizing = words.Offset(at.finalizing);
  layout.runtime_thread_key = at.thread_key;
  layout.thread_frame = words.Offset(at.current_frame);
  layout.frame_previous = words.Offset(at.frame_previous);
  layout.frame_code = words.Offset(at.frame_executable);
  layout.frame_instruction = words.Offset(at.frame_instruction);
  layout.frame_owner = words.Offset(at.frame_owner);
  layout.code_file = words.Offset(at.code_file);
  layout.code_name = words.Offset(at.code_name);
  layout.code_qualified_name = words.Offset(at.code_qualified_name);
  layout.code_lines = words.Offset(at.code_lines);
  layout.code_first_line = words.Offset(at.code_first_line);
  layout.code_bytecode = words.Offset(at.code_bytecode);
  const bool free_threaded = words.Raw(2) != 0;
  if (free_threaded && at.code_copies != 0) {
    layout.frame_bytecode_index = words.Offset(at.frame_bytecode_index);
    layout.code_copies = words.Offset(at.code_copies);
  }
  layout.code_version =
      static_cast<uint16_t>(layout.code_first_line + kVersionAfterFirstLine);
  layout.code_first_traceable = static_cast<uint16_t>(
      layout.code_bytecode - kFirstTraceableBeforeBytecode -
      (layout.code_copies != 0 ? sizeof(uintptr_t) : 0));
  layout.object_type = words.Offset(at.object_type);
  layout.bytes_size = words.Offset(at.bytes_size);
  layout.bytes_data = words.Offset(at.bytes_size + 1u);
  layout.text_state = words.Offset(at.text_state);
  layout.text_length = words.Offset(at.text_state + 1u);
  layout.text_ascii = words.Offset(at.text_state + 2u);
  // Adds the cached UTF-8 and its length.
  layout.text_compact = static_cast<uint16_t>(layout.text_ascii + 16);
  // The field before it is two bits wide, and a byte in free-threaded 3.14+.
  layout.text_kind_shift = at.minor >= 14 && free_threaded ? 8 : 2;
  if (!words.valid()) return std::nullopt;
  return layout;
}

}  // namespace

std::optional<PyLayout> LayoutFor(int minor, const void* runtime,
                                  size_t runtime_size) noexcept {
  for (const PyLayout& layout : kLayouts) {
    if (layout.minor == minor) return layout;
  }
  if (runtime_size < kPublishedSize ||
      memcmp(runtime, kCookie, sizeof(kCookie)) != 0) {
    return std::nullopt;
  }
  for (const PublishedWords& words : kPublished) {
    if (words.minor == minor) return ReadPublished(words, runtime);
  }
  return std::nullopt;
}

}  // namespace dstrace::stacks
