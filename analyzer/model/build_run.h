// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_BUILD_RUN_H_
#define DSTRACE_ANALYZER_MODEL_BUILD_RUN_H_

// Makes a Run out of a stream of events, in two replays.
//
//   pass 1   totals -> timeline, peak of each device, growth, end snapshot
//   pass 2   the state again, up to the last instant asked for -> snapshots
//
// Memory is proportional to what is live plus distinct stacks, not to the
// number of events. The peak of a device is the instant of greatest device use,
// and among equals of most live torch bytes: what the memory is for shows only
// when it is in use. Where no driver call was seen, torch live alone counts.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "analyzer/model/events.h"
#include "analyzer/model/run.h"

namespace dstrace::model {

// The instant of the snapshot beside peak and end.
struct At {
  enum class Kind {
    kNone,  // just peak and end; also for --at peak and --at end
    kTime,
    kMark,  // first mark of that name (a point, or the start of a range)
  };
  Kind kind = Kind::kNone;
  uint64_t time_ns = 0;
  std::string mark = {};
};

struct BuildOptions {
  At at;
  size_t timeline_points = 512;  // at least 1
};

// Takes the facts out of `source`. Errors: those of the replay; kNotFound for a
// mark that is not in the trace, kOutOfRange for a time after its end.
absl::StatusOr<Run> BuildRun(EventSource& source, const BuildOptions& options);

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_BUILD_RUN_H_
