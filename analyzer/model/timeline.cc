// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/timeline.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace dstrace::model {

Timeline::Timeline(uint64_t duration_ns, size_t points)
    : max_points_(std::max<size_t>(points, 1)),
      width_(duration_ns / max_points_ + 1),
      duration_(duration_ns) {
  StartBucket();
}

void Timeline::StartBucket() {
  TimelinePoint point;
  point.time_ns = points_.size() * width_;
  points_.push_back(point);
  // The last bucket takes whatever comes later.
  bucket_end_ = points_.size() == max_points_
                    ? std::numeric_limits<uint64_t>::max()
                    : points_.size() * width_;
  Raise();
}

void Timeline::Advance(uint64_t time_ns) {
  while (time_ns >= bucket_end_ && points_.size() < max_points_) StartBucket();
}

void Timeline::Raise() {
  TimelinePoint& point = points_.back();
  point.device_used = std::max(point.device_used, level_.used);
  point.torch_reserved = std::max(point.torch_reserved, level_.reserved);
  point.torch_live = std::max(point.torch_live, level_.live);
}

std::vector<TimelinePoint> Timeline::Finish() {
  Advance(duration_);
  return std::move(points_);
}

}  // namespace dstrace::model
