// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_PYTHON_FRAME_H_
#define DSTRACE_PRELOAD_STACKS_PYTHON_FRAME_H_

// One frame of the interpreter, in any of its layouts, and what a chain of them
// means. Internal to the stacks room.
//
// Thread-safety: reads memory that the calling thread's own stack keeps alive.

#include <cstdint>

#include "preload/stacks/python.h"
#include "preload/stacks/python_runtime.h"

namespace dstrace::stacks {

struct RawFrame {
  enum class Role : uint8_t {
    kRuns,      // a frame of the program
    kHidden,    // one that tracebacks leave out
    kEndsLoop,  // no frame: the base of a thread or of a C evaluation loop
  };
  Role role;
  bool entry;  // as in PyFrame
  uint32_t lasti;
  uintptr_t code;
};

// Collects frames, innermost first; knows when the array is full.
class FrameCollector {
 public:
  FrameCollector(PyFrame* out, int max) noexcept : out_(out), max_(max) {}

  // False: the frame is left out for want of room.
  bool Add(const RawFrame& frame) noexcept {
    if (frame.role == RawFrame::Role::kEndsLoop) EndLoop();
    if (frame.role != RawFrame::Role::kRuns) return true;
    if (count_ == max_) return false;
    const auto loops = empty_loops_ < kMaxLoops ? empty_loops_ : kMaxLoops;
    out_[count_++] = {reinterpret_cast<const void*>(frame.code), frame.lasti,
                      frame.entry, static_cast<uint8_t>(loops)};
    empty_loops_ = 0;
    return true;
  }

  // After the outermost frame. Returns the number of frames.
  int Finish(bool truncated) noexcept {
    if (!truncated && count_ > 0) out_[count_ - 1].entry = true;
    return count_;
  }

 private:
  static constexpr uint32_t kMaxLoops = 255;

  // The frame added last was the outermost of its evaluation loop; without one
  // since the last mark, that loop runs nothing at this instant.
  void EndLoop() noexcept {
    if (count_ > 0 && !out_[count_ - 1].entry && empty_loops_ == 0) {
      out_[count_ - 1].entry = true;
    } else {
      ++empty_loops_;
    }
  }

  PyFrame* const out_;
  const int max_;
  int count_ = 0;
  uint32_t empty_loops_ = 0;
};

namespace internal {

inline uint32_t ToOffset(intptr_t bytes) noexcept {
  return bytes < 0 ? PyFrame::kNotStarted : static_cast<uint32_t>(bytes);
}

// Free-threaded 3.14+ gives each thread its own copy of the bytecode.
inline uintptr_t Bytecode(const PyLayout& layout, uintptr_t frame,
                          uintptr_t code) noexcept {
  if (__builtin_expect(layout.code_copies == 0, 1)) {
    return code + layout.code_bytecode;
  }
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
inline bool IsHidden(const PyLayout& layout, uintptr_t frame, uintptr_t code,
                     intptr_t lasti) noexcept {
  constexpr intptr_t kLongestPrologue = 64;
  constexpr uint8_t kOwnedByGenerator = 1;
  constexpr intptr_t kCodeUnit = 2;
  if (__builtin_expect(lasti >= kLongestPrologue, 1)) return false;
  if (Load<uint8_t>(frame + layout.frame_owner) == kOwnedByGenerator) {
    return false;
  }
  return lasti < kCodeUnit * Load<int32_t>(code + layout.code_first_traceable);
}

inline RawFrame ReadFrameObject(const PyLayout& layout,
                                uintptr_t frame) noexcept {
  const auto index = Load<int32_t>(frame + layout.frame_instruction);
  return {RawFrame::Role::kRuns, true,
          ToOffset(intptr_t{index} * layout.instruction_scale),
          Load<uintptr_t>(frame + layout.frame_code)};
}

inline RawFrame ReadFlaggedFrame(const PyLayout& layout,
                                 uintptr_t frame) noexcept {
  const auto code = Load<uintptr_t>(frame + layout.frame_code);
  const auto instruction = Load<uintptr_t>(frame + layout.frame_instruction);
  const uintptr_t bytecode = code + layout.code_bytecode;
  return {RawFrame::Role::kRuns, Load<uint8_t>(frame + layout.frame_entry) != 0,
          ToOffset(static_cast<intptr_t>(instruction - bytecode)), code};
}

inline RawFrame ReadShimmedFrame(const PyLayout& layout,
                                 uintptr_t frame) noexcept {
  if (Load<uint8_t>(frame + layout.frame_owner) >= kFirstShimOwner) {
    return {RawFrame::Role::kEndsLoop, false, 0, 0};
  }
  const uintptr_t code =
      Load<uintptr_t>(frame + layout.frame_code) & ~kReferenceTags;
  const auto instruction = Load<uintptr_t>(frame + layout.frame_instruction);
  const auto lasti =
      static_cast<intptr_t>(instruction - Bytecode(layout, frame, code));
  const bool hidden = IsHidden(layout, frame, code, lasti);
  return {hidden ? RawFrame::Role::kHidden : RawFrame::Role::kRuns, false,
          ToOffset(lasti), code};
}

}  // namespace internal

template <FrameKind kKind>
inline RawFrame ReadFrameOf(const PyLayout& layout, uintptr_t frame) noexcept {
  if constexpr (kKind == FrameKind::kFrameObject) {
    return internal::ReadFrameObject(layout, frame);
  } else if constexpr (kKind == FrameKind::kEntryFlag) {
    return internal::ReadFlaggedFrame(layout, frame);
  } else {
    return internal::ReadShimmedFrame(layout, frame);
  }
}

inline RawFrame ReadFrame(const PyLayout& layout, uintptr_t frame) noexcept {
  switch (layout.frame_kind) {
    case FrameKind::kFrameObject:
      return ReadFrameOf<FrameKind::kFrameObject>(layout, frame);
    case FrameKind::kEntryFlag:
      return ReadFrameOf<FrameKind::kEntryFlag>(layout, frame);
    case FrameKind::kShim:
      break;
  }
  return ReadFrameOf<FrameKind::kShim>(layout, frame);
}

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_PYTHON_FRAME_H_
