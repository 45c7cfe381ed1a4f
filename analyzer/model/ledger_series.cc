// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/ledger_series.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "analyzer/model/replay.h"
#include "analyzer/model/snapshot.h"

namespace dstrace::model {
namespace {

class SeriesPass : public StateReplay<SeriesPass> {
 public:
  SeriesPass(const TraceFacts& facts, int default_device,
             std::vector<uint64_t> times)
      : StateReplay(facts.stacks, default_device),
        at_samples_(times.empty()),
        times_(std::move(times)) {
    std::sort(times_.begin(), times_.end());
  }

  void Before(uint64_t time_ns) {
    while (next_ < times_.size() && times_[next_] < time_ns) Take();
  }
  bool After(uint64_t /*time_ns*/, int device) {
    last_device_ = std::max(last_device_, device);
    return at_samples_ || next_ < times_.size();
  }
  bool OnMemorySample(const MemorySample& event) override {
    const bool go_on = StateReplay::OnMemorySample(event);
    if (at_samples_) Add(event.time, event.device);
    return go_on;
  }

  std::vector<LedgerPoint> Finish() {
    Before(std::numeric_limits<uint64_t>::max());
    return std::move(points_);
  }

 private:
  void Take() {
    for (int device = 0; device <= last_device_; ++device) {
      if (state_.has_device_layer(device) ||
          state_.tensor_layer().seen(device)) {
        Add(times_[next_], device);
      }
    }
    ++next_;
  }
  void Add(uint64_t time_ns, int device) {
    points_.push_back(
        {time_ns, device, MakeLedger(state_, device, time_ns, std::nullopt)});
  }

  const bool at_samples_;
  std::vector<uint64_t> times_;
  size_t next_ = 0;
  int last_device_ = -1;
  std::vector<LedgerPoint> points_;
};

}  // namespace

absl::StatusOr<std::vector<LedgerPoint>> LedgerSeries(
    const EventSource& source, std::vector<uint64_t> times) {
  const std::vector<Gpu>& gpus = source.facts().process.gpus;
  const bool known = !gpus.empty() && gpus.front().index < kMaxDevices;
  SeriesPass pass(source.facts(), known ? gpus.front().index : 0,
                  std::move(times));
  if (const absl::Status status = source.Replay(pass); !status.ok()) {
    return status;
  }
  return pass.Finish();
}

}  // namespace dstrace::model
