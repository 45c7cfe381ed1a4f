// SPDX-License-Identifier: Apache-2.0
//
// Fills Measured from a trace: where the phases of a DeepSpeed run begin and
// end, what is alive at their ends and peaks, what torch's allocator keeps
// without a tensor in it, by stack. Thread-safety: pure function. Units: bytes
// on one GPU.
//
//   load         from the start to the first frame of deepspeed.initialize,
//                or, without one, to the first forward, backward or step
//   initialize   to the last allocation under deepspeed.initialize and what
//                is freed before the next allocation
//   forward, backward, step   told by each allocation's stack, after that
//
// The cache after loading is taken at the last instant at which torch's
// reserved memory stood at its highest in the phase: a torch.cuda.empty_cache()
// at the end of a script must not hide what was there.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_MEASURE_TRACE_H_
#define DSTRACE_ANALYZER_DEEPSPEED_MEASURE_TRACE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "analyzer/deepspeed/measured.h"
#include "analyzer/deepspeed/version.h"
#include "analyzer/model/events.h"
#include "analyzer/model/frame_text.h"

namespace dstrace::deepspeed {

struct TraceMeasure {
  Measured measured;
  int device = 0;  // the one with most tensor bytes, or the one asked for
  std::optional<int> rank;
  std::optional<int> world_size;
  std::optional<Version> torch_version;
  // Where the optimizer's states were made: in the first step, or (false)
  // under deepspeed.initialize; nullopt: none was seen on a GPU.
  std::optional<bool> states_at_first_step;
  bool deepspeed = false;   // some stack runs through DeepSpeed
  bool initialize = false;  // deepspeed.initialize was reached
};

// `frames` has the words for source.facts().stacks.frames. Errors: those of
// the replay; NotFound when no tensor was seen on `device` (or on any GPU).
absl::StatusOr<TraceMeasure> MeasureTrace(
    const model::EventSource& source,
    const std::vector<model::FrameText>& frames,
    std::optional<int> device = std::nullopt);

// Gives the partition of an output head that was replaced when it was tied
// its own tag. `head_bytes` is what one rank's part of it takes. Of the
// partitions that size the head's is the one whose module was built farthest
// out; the other is the embedding's.
void TagTiedHead(int64_t head_bytes, Measured* measured);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_MEASURE_TRACE_H_
