// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_RANGES_H_
#define DSTRACE_PRELOAD_HOOKS_RANGES_H_

// Where the program says it is, from whichever API: NVTX or dstrace_push().
//
// A mark never opens the log: a process that annotates but does not use CUDA
// leaves no file. The ranges that are open in a thread when it makes its first
// CUDA call are written right before that call; points and ranges that ended
// before are not.
//
// Thread-safety: all state is the calling thread's. Call under runtime::Guard.

#include <cstdint>
#include <string_view>

namespace dstrace::hooks {

// `domain` must live for ever; `name` is copied.
void MarkPoint(std::string_view name, std::string_view domain) noexcept;
void PushRange(std::string_view name, std::string_view domain) noexcept;
void PopRange(std::string_view domain) noexcept;

// Open ranges of this thread that are not in the trace yet.
extern constinit thread_local uint32_t t_kept_ranges
    __attribute__((tls_model("initial-exec")));

// Writes them. Opens the log.
void WriteKeptRangesSlow() noexcept;

// Before an event that will open the log anyway.
inline void WriteKeptRanges() noexcept {
  if (__builtin_expect(t_kept_ranges != 0, 0)) WriteKeptRangesSlow();
}

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_RANGES_H_
