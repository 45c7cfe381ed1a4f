// SPDX-License-Identifier: Apache-2.0
//
// What a trace says, in the terms of this room; whoever reads the trace fills
// it in. Every number may be missing: a missing one is never guessed and
// never becomes a finding. Thread-safety: plain data. Units: bytes on one GPU.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_MEASURED_H_
#define DSTRACE_ANALYZER_DEEPSPEED_MEASURED_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/deepspeed/tags.h"

namespace dstrace::deepspeed {

// What a row's bytes are.
enum class RowKind {
  kLive,    // tensors alive at the end of the phase; load, initialize, step
  kPeak,    // tensors alive at the peak of the phase
  kCached,  // held by torch's allocator at the end of the phase without a
            // live tensor in it, by the stack that made the segment grow
  kDevice,  // taken from the driver outside torch's allocator
  kPinned,  // page-locked host memory at the end of the phase
};

struct MeasuredRow {
  Phase phase = Phase::kUnknown;  // kUnknown: told from the stack
  RowKind kind = RowKind::kLive;
  // Left empty, the tag is told from the stack.
  std::optional<Tag> tag;
  int64_t bytes = 0;
  // Innermost first, with functions as Python names them; native frames may
  // stand between. All frames, not only the top ones: the tag is found by
  // functions far out, such as initialize_optimizer_states.
  std::vector<std::string> stack;
};

// The state at the end of a phase.
struct MeasuredPhase {
  Phase phase = Phase::kUnknown;
  std::optional<int64_t> live;            // torch, allocated
  std::optional<int64_t> peak;            // torch, highest allocated
  std::optional<int64_t> end_live;        // torch, after the last step
  std::optional<int64_t> reserved;        // torch, segments
  std::optional<int64_t> device_used;     // all of this process
  std::optional<int64_t> host_pinned;     // page-locked, beside the device
  std::optional<int64_t> stream_pending;  // freed, waiting for a stream
};

struct MeasuredOom {
  int64_t request = 0;
  std::optional<int64_t> live;
  std::optional<int64_t> reserved;
  std::optional<int64_t> limit;  // what the process could have had
  std::vector<std::string> stack;
};

struct Measured {
  std::vector<MeasuredRow> rows;
  std::vector<MeasuredPhase> phases;
  std::optional<MeasuredOom> oom;
  std::optional<int64_t> nccl_bytes;
  std::optional<int> communicators;
  std::optional<int64_t> context_bytes;

  const MeasuredPhase* Find(Phase phase) const {
    for (const MeasuredPhase& one : phases) {
      if (one.phase == phase) return &one;
    }
    return nullptr;
  }
};

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_MEASURED_H_
