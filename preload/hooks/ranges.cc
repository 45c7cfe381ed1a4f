// SPDX-License-Identifier: Apache-2.0
#include "preload/hooks/ranges.h"

#include <cstring>
#include <type_traits>

#include "preload/capture/recorder.h"
#include "preload/hooks/export.h"
#include "preload/runtime/guard.h"

namespace dstrace::hooks {

constinit thread_local uint32_t t_kept_ranges
    __attribute__((tls_model("initial-exec"))) = 0;

namespace {

using capture::MarkKind;

// A range that was opened before there was a log to write it to.
struct KeptRange {
  static constexpr size_t kMaxName = 47;

  std::string_view domain;
  uint8_t size;  // 0: no range is kept here
  char name[kMaxName];
};

// The open ranges of a thread, outermost first. Past these bounds a range is
// written when the log is open and forgotten when it is not.
struct OpenRanges {
  static constexpr uint32_t kKept = 8;
  static constexpr uint32_t kTracked = 64;

  uint32_t depth;
  uint64_t written;  // one bit per level: its push is in the trace
  KeptRange kept[kKept];
};

constinit thread_local OpenRanges t_open
    __attribute__((tls_model("initial-exec"))) = {};

// Static TLS: nothing to run when a thread ends.
static_assert(std::is_trivially_destructible_v<OpenRanges>);

uint64_t BitOfLevel(uint32_t level) noexcept {
  return level < OpenRanges::kTracked ? uint64_t{1} << level : 0;
}

void Keep(uint32_t level, std::string_view name,
          std::string_view domain) noexcept {
  if (level >= OpenRanges::kKept || name.empty()) return;
  KeptRange& range = t_open.kept[level];
  name = name.substr(0, KeptRange::kMaxName);
  std::memcpy(range.name, name.data(), name.size());
  range.size = static_cast<uint8_t>(name.size());
  range.domain = domain;
  ++t_kept_ranges;
}

void Forget(uint32_t level) noexcept {
  if (level >= OpenRanges::kKept || t_open.kept[level].size == 0) return;
  t_open.kept[level].size = 0;
  --t_kept_ranges;
}

}  // namespace

void WriteKeptRangesSlow() noexcept {
  for (uint32_t level = 0; level < OpenRanges::kKept; ++level) {
    const KeptRange& range = t_open.kept[level];
    if (range.size == 0) continue;
    capture::RecordMark(MarkKind::kPush, {range.name, range.size},
                        range.domain);
    t_open.written |= BitOfLevel(level);
    Forget(level);
  }
}

void MarkPoint(std::string_view name, std::string_view domain) noexcept {
  if (!capture::IsRecording() || name.empty()) return;
  WriteKeptRanges();
  capture::RecordMark(MarkKind::kPoint, name, domain);
}

void PushRange(std::string_view name, std::string_view domain) noexcept {
  const uint32_t level = t_open.depth++;
  t_open.written &= ~BitOfLevel(level);
  if (!capture::IsRecording()) {
    Keep(level, name, domain);
    return;
  }
  WriteKeptRanges();
  if (name.empty()) return;
  capture::RecordMark(MarkKind::kPush, name, domain);
  t_open.written |= BitOfLevel(level);
}

void PopRange(std::string_view domain) noexcept {
  if (t_open.depth == 0) return;
  const uint32_t level = --t_open.depth;
  Forget(level);
  const bool tracked = level < OpenRanges::kTracked;
  const bool written = !tracked || (t_open.written & BitOfLevel(level)) != 0;
  if (!written || !capture::IsRecording()) return;
  WriteKeptRanges();
  capture::RecordMark(MarkKind::kPop, {}, domain);
}

}  // namespace dstrace::hooks

extern "C" {

// What include/dstrace/dstrace.h declares.
DSTRACE_EXPORT void dstrace_mark(const char* name) noexcept {
  dstrace::runtime::Guard guard;
  if (guard.entered() && name != nullptr) dstrace::hooks::MarkPoint(name, {});
}

DSTRACE_EXPORT void dstrace_push(const char* name) noexcept {
  dstrace::runtime::Guard guard;
  if (!guard.entered()) return;
  dstrace::hooks::PushRange(name == nullptr ? "" : name, {});
}

DSTRACE_EXPORT void dstrace_pop() noexcept {
  dstrace::runtime::Guard guard;
  if (guard.entered()) dstrace::hooks::PopRange({});
}

}  // extern "C"
