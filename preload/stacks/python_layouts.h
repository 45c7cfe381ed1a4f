// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_PYTHON_LAYOUTS_H_
#define DSTRACE_PRELOAD_STACKS_PYTHON_LAYOUTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

// Where CPython keeps what we read: one row per minor version up to 3.12; from
// 3.13 on the interpreter publishes its own offsets and the row is filled in.

namespace dstrace::stacks {

// How frames are chained.
enum class FrameKind : uint8_t {
  kFrameObject,  // 3.8-3.10: PyFrameObject, one C evaluation loop for each
  kEntryFlag,    // 3.11: several per loop, the outermost has a flag
  kShim,         // 3.12+: several per loop, a frame without code closes the run
};

enum class LineTable : uint8_t {
  kLnotab,     // 3.8, 3.9: pairs of increments
  kRanges,     // 3.10: pairs of increments with line-less ranges
  kLocations,  // 3.11+: entries with columns
};

// All offsets in bytes; 0 means "does not exist" where noted.
struct PyLayout {
  uint8_t minor;
  FrameKind frame_kind;
  LineTable line_table;
  uint8_t instruction_scale;  // kFrameObject: bytes per unit of f_lasti
  uint16_t runtime_finalizing;
  uint16_t runtime_thread_key;  // Py_tss_t of PyGILState; checked before use
  uint16_t thread_frame;        // PyThreadState to the frame, or to the cframe
  uint16_t cframe_frame;        // read through a cframe (3.11, 3.12)
  bool has_cframe;
  uint16_t cframe_previous;  // to the enclosing loop's (3.11)
  uint16_t frame_previous;
  uint16_t frame_code;
  uint16_t frame_instruction;     // index, or pointer into the bytecode
  uint16_t frame_owner;           // kShim
  uint16_t frame_entry;           // kEntryFlag
  uint16_t frame_bytecode_index;  // free-threaded 3.14+: which copy; or 0
  uint16_t code_bytecode;         // 3.11+
  uint16_t code_copies;           // free-threaded 3.14+: table of copies; or 0
  uint16_t code_first_traceable;  // kShim: index of the first unit after the
                                  // prologue
  uint16_t code_name;
  uint16_t code_qualified_name;  // 3.11+, or 0
  uint16_t code_file;
  uint16_t code_first_line;
  uint16_t code_lines;
  uint16_t code_version;  // 3.12+: differs for each code object; or 0
  uint16_t object_type;
  uint16_t text_length;  // the cached hash follows it
  uint16_t text_state;
  uint16_t text_ascii;      // size of the header of an ASCII string
  uint16_t text_compact;    // of any other compact string
  uint8_t text_kind_shift;  // position of `kind` in the state word
  uint16_t bytes_size;
  uint16_t bytes_data;
};

// Owners from this value on mark a frame without code: the base of a thread or
// of a C evaluation loop (3.12+).
inline constexpr uint8_t kFirstShimOwner = 3;

inline constexpr PyLayout kLayouts[] = {
    {.minor = 8,
     .frame_kind = FrameKind::kFrameObject,
     .line_table = LineTable::kLnotab,
     .instruction_scale = 1,
     .runtime_finalizing = 16,
     .runtime_thread_key = 1392,
     .thread_frame = 24,
     .cframe_frame = 0,
     .has_cframe = false,
     .cframe_previous = 0,
     .frame_previous = 24,
     .frame_code = 32,
     .frame_instruction = 104,
     .frame_owner = 0,
     .frame_entry = 0,
     .frame_bytecode_index = 0,
     .code_bytecode = 0,
     .code_copies = 0,
     .code_first_traceable = 0,
     .code_name = 112,
     .code_qualified_name = 0,
     .code_file = 104,
     .code_first_line = 40,
     .code_lines = 120,
     .code_version = 0,
     .object_type = 8,
     .text_length = 16,
     .text_state = 32,
     .text_ascii = 48,
     .text_compact = 72,
     .text_kind_shift = 2,
     .bytes_size = 16,
     .bytes_data = 32},
    {.minor = 9,
     .frame_kind = FrameKind::kFrameObject,
     .line_table = LineTable::kLnotab,
     .instruction_scale = 1,
     .runtime_finalizing = 16,
     .runtime_thread_key = 584,
     .thread_frame = 24,
     .cframe_frame = 0,
     .has_cframe = false,
     .cframe_previous = 0,
     .frame_previous = 24,
     .frame_code = 32,
     .frame_instruction = 104,
     .frame_owner = 0,
     .frame_entry = 0,
     .frame_bytecode_index = 0,
     .code_bytecode = 0,
     .code_copies = 0,
     .code_first_traceable = 0,
     .code_name = 112,
     .code_qualified_name = 0,
     .code_file = 104,
     .code_first_line = 40,
     .code_lines = 120,
     .code_version = 0,
     .object_type = 8,
     .text_length = 16,
     .text_state = 32,
     .text_ascii = 48,
     .text_compact = 72,
     .text_kind_shift = 2,
     .bytes_size = 16,
     .bytes_data = 32},
    {.minor = 10,
     .frame_kind = FrameKind::kFrameObject,
     .line_table = LineTable::kRanges,
     .instruction_scale = 2,
     .runtime_finalizing = 16,
     .runtime_thread_key = 584,
     .thread_frame = 24,
     .cframe_frame = 0,
     .has_cframe = false,
     .cframe_previous = 0,
     .frame_previous = 24,
     .frame_code = 32,
     .frame_instruction = 96,
     .frame_owner = 0,
     .frame_entry = 0,
     .frame_bytecode_index = 0,
     .code_bytecode = 0,
     .code_copies = 0,
     .code_first_traceable = 0,
     .code_name = 112,
     .code_qualified_name = 0,
     .code_file = 104,
     .code_first_line = 40,
     .code_lines = 120,
     .code_version = 0,
     .object_type = 8,
     .text_length = 16,
     .text_state = 32,
     .text_ascii = 48,
     .text_compact = 72,
     .text_kind_shift = 2,
     .bytes_size = 16,
     .bytes_data = 32},
    {.minor = 11,
     .frame_kind = FrameKind::kEntryFlag,
     .line_table = LineTable::kLocations,
     .instruction_scale = 1,
     .runtime_finalizing = 24,
     .runtime_thread_key = 592,
     .thread_frame = 56,
     .cframe_frame = 8,
     .has_cframe = true,
     .cframe_previous = 16,
     .frame_previous = 48,
     .frame_code = 32,
     .frame_instruction = 56,
     .frame_owner = 69,
     .frame_entry = 68,
     .frame_bytecode_index = 0,
     .code_bytecode = 184,
     .code_copies = 0,
     .code_first_traceable = 0,
     .code_name = 120,
     .code_qualified_name = 128,
     .code_file = 112,
     .code_first_line = 72,
     .code_lines = 136,
     .code_version = 0,
     .object_type = 8,
     .text_length = 16,
     .text_state = 32,
     .text_ascii = 48,
     .text_compact = 72,
     .text_kind_shift = 2,
     .bytes_size = 16,
     .bytes_data = 32},
    {.minor = 12,
     .frame_kind = FrameKind::kShim,
     .line_table = LineTable::kLocations,
     .instruction_scale = 1,
     .runtime_finalizing = 24,
     .runtime_thread_key = 1544,
     .thread_frame = 56,
     .cframe_frame = 0,
     .has_cframe = true,
     .cframe_previous = 0,
     .frame_previous = 8,
     .frame_code = 0,
     .frame_instruction = 56,
     .frame_owner = 70,
     .frame_entry = 0,
     .frame_bytecode_index = 0,
     .code_bytecode = 192,
     .code_copies = 0,
     .code_first_traceable = 176,
     .code_name = 120,
     .code_qualified_name = 128,
     .code_file = 112,
     .code_first_line = 68,
     .code_lines = 136,
     .code_version = 92,
     .object_type = 8,
     .text_length = 16,
     .text_state = 32,
     .text_ascii = 40,
     .text_compact = 56,
     .text_kind_shift = 2,
     .bytes_size = 16,
     .bytes_data = 32},
};

// The layout of CPython 3.`minor`; `runtime` is its _PyRuntime, at least
// `runtime_size` bytes long. Empty where it is not known.
std::optional<PyLayout> LayoutFor(int minor, const void* runtime,
                                  size_t runtime_size) noexcept;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_PYTHON_LAYOUTS_H_
