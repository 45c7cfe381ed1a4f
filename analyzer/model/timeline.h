// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_TIMELINE_H_
#define DSTRACE_ANALYZER_MODEL_TIMELINE_H_

// Memory over time in a fixed number of buckets of equal length. Each holds the
// maxima inside it; what holds at its start counts too, so that a bucket
// without events shows what was there. Not thread-safe.

#include <cstdint>
#include <vector>

#include "analyzer/model/run.h"

namespace dstrace::model {

struct Level {
  uint64_t used = 0;
  uint64_t reserved = 0;
  uint64_t live = 0;
};

class Timeline {
 public:
  // Covers [0, duration_ns]; `points` > 0.
  Timeline(uint64_t duration_ns, size_t points);

  // `time_ns` must not decrease.
  void Update(uint64_t time_ns, const Level& level) {
    if (time_ns >= bucket_end_) Advance(time_ns);
    level_ = level;
    Raise();
  }

  [[nodiscard]] std::vector<TimelinePoint> Finish();

 private:
  void Advance(uint64_t time_ns);
  void Raise();
  void StartBucket();

  const size_t max_points_;
  const uint64_t width_;  // nanoseconds
  const uint64_t duration_;
  uint64_t bucket_end_ = 0;
  Level level_;
  std::vector<TimelinePoint> points_;
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_TIMELINE_H_
