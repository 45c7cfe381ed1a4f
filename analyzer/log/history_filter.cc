// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/history_filter.h"

#include <variant>

namespace dstrace::log {
namespace {

// Delivers one event of a checkpoint.
class Delivery {
 public:
  explicit Delivery(model::EventVisitor& visitor) : visitor_(visitor) {}

  bool operator()(const model::TensorAlloc& event) const {
    return visitor_.OnTensorAlloc(event);
  }
  bool operator()(const model::DeviceEvent& event) const {
    return visitor_.OnDevice(event);
  }
  bool operator()(const model::MemorySample& event) const {
    return visitor_.OnMemorySample(event);
  }
  bool operator()(const model::TorchTotals& event) const {
    return visitor_.OnTorchTotals(event);
  }

 private:
  model::EventVisitor& visitor_;
};

// What a checkpoint stands in for. Failed calls changed nothing; the others
// are facts about the process that no checkpoint repeats.
bool IsInCheckpoint(const model::DeviceEvent& event) {
  using model::DeviceKind;
  if (event.result != 0) return false;
  switch (event.kind) {
    case DeviceKind::kContextCreate:
    case DeviceKind::kContextDestroy:
    case DeviceKind::kCommunicator:
    case DeviceKind::kLimit:
    case DeviceKind::kGraph:
    case DeviceKind::kUnknown:
      return false;
    default:
      return true;
  }
}

}  // namespace

bool HistoryFilter::CatchUp(uint64_t time) {
  const auto is_due = [&](const auto& event) { return event.time <= time; };
  while (next_ < live_.size() && std::visit(is_due, live_[next_])) {
    if (!std::visit(Delivery(visitor_), live_[next_++])) stopped_ = true;
    if (stopped_) return false;
  }
  return true;
}

void HistoryFilter::Finish() {
  if (!stopped_) CatchUp(UINT64_MAX);
}

bool HistoryFilter::OnTensorAlloc(const model::TensorAlloc& event) {
  if (!CatchUp(event.time)) return false;
  if (event.time <= start_) return true;
  return !(stopped_ = !visitor_.OnTensorAlloc(event));
}

bool HistoryFilter::OnTensorFree(const model::TensorFree& event) {
  if (!CatchUp(event.time)) return false;
  if (event.time <= start_) return true;
  return !(stopped_ = !visitor_.OnTensorFree(event));
}

bool HistoryFilter::OnDevice(const model::DeviceEvent& event) {
  if (!CatchUp(event.time)) return false;
  if (event.time <= start_ && IsInCheckpoint(event)) return true;
  return !(stopped_ = !visitor_.OnDevice(event));
}

bool HistoryFilter::OnMemorySample(const model::MemorySample& event) {
  return CatchUp(event.time) && !(stopped_ = !visitor_.OnMemorySample(event));
}

bool HistoryFilter::OnTorchTotals(const model::TorchTotals& event) {
  if (!CatchUp(event.time)) return false;
  if (event.time <= start_) return true;
  return !(stopped_ = !visitor_.OnTorchTotals(event));
}

bool HistoryFilter::OnOutOfMemory(const model::OutOfMemory& event) {
  return CatchUp(event.time) && !(stopped_ = !visitor_.OnOutOfMemory(event));
}

bool HistoryFilter::OnStreamEvent(const model::StreamEvent& event) {
  if (!CatchUp(event.time)) return false;
  if (event.time <= start_) return true;
  return !(stopped_ = !visitor_.OnStreamEvent(event));
}

bool HistoryFilter::OnMark(const model::Mark& event) {
  return CatchUp(event.time) && !(stopped_ = !visitor_.OnMark(event));
}

bool HistoryFilter::OnCuptiTotals(const model::CuptiTotals& event) {
  return CatchUp(event.time) && !(stopped_ = !visitor_.OnCuptiTotals(event));
}

bool HistoryFilter::OnEnd(const model::End& event) {
  return CatchUp(event.time) && !(stopped_ = !visitor_.OnEnd(event));
}

}  // namespace dstrace::log
