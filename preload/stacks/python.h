// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_PYTHON_H_
#define DSTRACE_PRELOAD_STACKS_PYTHON_H_

#include <cstdint>

// The Python frames of the calling thread, CPython 3.8 to 3.14, read from the
// interpreter's memory: without the GIL (allocators run without it, and taking
// it inside an allocator's lock can deadlock) and without running Python. The
// frames cannot move meanwhile: they are the caller's own.
//
// Thread-safety: any thread, any time; no locks, no heap, errno preserved.

namespace dstrace::stacks {

struct PyFrame {
  // Frame that has not run an instruction yet.
  static constexpr uint32_t kNotStarted = 0xffffffffu;

  const void* code;  // PyCodeObject*; valid while the frame is on the stack
  uint32_t lasti;    // byte offset of the current instruction, or kNotStarted
  bool entry;        // outermost frame run by its C evaluation loop: the next
                     // frame belongs to the next C evaluation loop
  // Evaluation loops between this frame and the one before it that run no
  // Python frame at this instant: a function that was called from C is just
  // giving up its local variables.
  uint8_t empty_loops;
};

enum class PyStatus : uint8_t {
  kNoPython,     // no interpreter in the process (so far)
  kUnsupported,  // an interpreter whose layout is unknown or failed its check
  kOk,
};

// What is known so far. Says kOk once an interpreter was found, before its
// layout was checked against a first frame.
PyStatus PythonStatus() noexcept;

// PY_VERSION_HEX of the interpreter (0x030b07f0 = 3.11.7), 0 while none is
// known.
uint32_t PythonVersionHex() noexcept;

// Writes up to `max` frames, innermost first, and returns how many; 0 where the
// thread runs no Python. `*truncated` (may be null) says that more were there.
int CapturePython(PyFrame* out, int max, bool* truncated) noexcept;

// What distinguishes the code object now at this address from another one that
// lived there before; a handful of loads. `code` must come from a frame of
// this thread that has not returned.
uint64_t CodeFingerprint(const void* code) noexcept;

struct PyCodeInfo {
  char name[256];  // UTF-8, qualified name from 3.11 on, cut at a character
  char file[512];  // UTF-8 as in co_filename, cut at a character
  int first_line;
  int line;  // 0 where the instruction has none
};

// Describes a frame; meant for the first sight of a (code, lasti). False (and
// empty texts) where the code object does not look like one.
bool DescribeFrame(const PyFrame& frame, PyCodeInfo* info) noexcept;

// Where the interpreter's code lies; null/0 while none is known.
struct PyImage {
  const void* any_address;  // an address inside the module
  const void* eval_frame;   // _PyEval_EvalFrameDefault
};
PyImage PythonImage() noexcept;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_PYTHON_H_
