// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/totals_pass.h"

#include <utility>

namespace dstrace::model {
namespace {

// Calls whose failure a user wants to know about. A free that fails is the
// program's own affair and counts as unmatched.
bool AsksForMemory(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kAlloc:
    case DeviceKind::kManagedAlloc:
    case DeviceKind::kPoolAlloc:
    case DeviceKind::kPhysicalCreate:
    case DeviceKind::kMap:
    case DeviceKind::kAddressReserve:
    case DeviceKind::kHostAlloc:
    case DeviceKind::kHostRegister:
    case DeviceKind::kContextCreate:
    case DeviceKind::kArrayCreate:
    case DeviceKind::kModuleLoad:
    case DeviceKind::kIpcOpen:
      return true;
    default:
      return false;
  }
}

bool AddsDeviceMemory(DeviceKind kind) {
  return kind == DeviceKind::kAlloc || kind == DeviceKind::kPoolAlloc ||
         kind == DeviceKind::kPhysicalCreate ||
         kind == DeviceKind::kArrayCreate;
}

}  // namespace

TotalsPass::TotalsPass(const TraceFacts& facts, int default_device,
                       const BuildOptions& options)
    : StateReplay(facts.stacks, default_device),
      options_(options),
      duration_ns_(facts.process.duration_ns),
      history_start_ns_(facts.history_start_ns) {
  if (options.at.kind == At::Kind::kTime) {
    requested_ = Place{0, options.at.time_ns};
  }
}

TotalsPass::DeviceTrack& TotalsPass::Track(int device) {
  const auto slot = static_cast<size_t>(device) + 1;
  if (slot >= tracks_.size()) tracks_.resize(slot + 1);
  if (tracks_[slot] == nullptr) {
    Timeline timeline(duration_ns_, options_.timeline_points);
    // A map's entries stay where they are.
    tracks_[slot] = &devices_.emplace(device, DeviceTrack(std::move(timeline)))
                         .first->second;
  }
  return *tracks_[slot];
}

bool TotalsPass::After(uint64_t time_ns, int device) {
  if (options_.at.kind == At::Kind::kTime && time_ns <= options_.at.time_ns) {
    requested_->ordinal = ordinal_;
  }
  if (device == kUnknownIndex) return true;
  // Pinned host memory alone is shown beside the devices, not as one.
  if (device == kHostIndex && state_.tensor_layer().live_bytes(device) == 0 &&
      (tracks_.empty() || tracks_[0] == nullptr)) {
    return true;
  }
  DeviceTrack& track = Track(device);
  const Level level = state_.LevelOf(device);
  track.timeline.Update(time_ns, level);
  // Of the time before, only what outlived it is known.
  if (time_ns < history_start_ns_) return true;
  if (level.used > track.peak_used ||
      (level.used == track.peak_used && level.live > track.peak_live)) {
    track.peak_used = level.used;
    track.peak_live = level.live;
    track.peak = Place{ordinal_, time_ns};
  }
  return true;
}

bool TotalsPass::OnDevice(const DeviceEvent& event) {
  cupti_.Add(event);
  if (event.result == 0) {
    if (AddsDeviceMemory(event.kind)) AddGrowth(event);
  } else if (AsksForMemory(event.kind)) {
    Failure failure;
    failure.time_ns = event.time;
    failure.api = std::string(event.api);
    failure.device = state_.device_layer().DeviceOf(event);
    failure.size = event.size;
    failure.result = event.result;
    failure.free_bytes = event.free_bytes;
    failure.total_bytes = event.total_bytes;
    failure.stack = event.stack;
    FillTorch(failure.device, &failure);
    AddFailure(std::move(failure));
  }
  return Take(event);
}

void TotalsPass::AddGrowth(const DeviceEvent& event) {
  const int device = state_.device_layer().DeviceOf(event);
  if (device == kHostIndex) return;
  Growth& growth = Track(device).growth[event.stack];
  growth.stack = event.stack;
  growth.bytes += event.size;
  ++growth.count;
}

void TotalsPass::FillTorch(int device, Failure* failure) const {
  failure->torch_live = state_.tensor_layer().live_bytes(device);
  failure->torch_reserved = state_.TorchReserved(device);
}

void TotalsPass::AddFailure(Failure failure) {
  if (failures_.size() < kMaxFailures) {
    failures_.push_back(std::move(failure));
  } else {
    ++dropped_failures_;
  }
}

bool TotalsPass::OnOutOfMemory(const OutOfMemory& event) {
  Failure failure;
  failure.time_ns = event.time;
  failure.api = "torch";
  failure.device = DeviceOfTensor(event.torch_device);
  failure.size = event.size;
  failure.stack = event.stack;
  failure.torch_live = event.allocated;
  failure.torch_reserved = event.reserved;
  const MemoryState::PerDevice* const known = state_.Find(failure.device);
  if (known != nullptr && known->anchor.has_value()) {
    const Anchor& anchor = *known->anchor;
    const uint64_t used = anchor.UsedWhen(state_.LayerBytes(failure.device));
    failure.total_bytes = anchor.total;
    failure.free_bytes = anchor.total > used ? anchor.total - used : 0;
  }
  AddFailure(std::move(failure));
  return Pass(event);
}

bool TotalsPass::OnCuptiTotals(const CuptiTotals& event) {
  cupti_.Add(event);
  return Pass(event);
}

bool TotalsPass::OnMark(const Mark& event) {
  const bool go_on = Pass(event);
  constexpr int kPop = 2;
  if (options_.at.kind == At::Kind::kMark && !requested_.has_value() &&
      event.kind != kPop && event.name == options_.at.mark) {
    requested_ = Place{ordinal_, event.time};
  }
  if (marks_.size() < kMaxMarks) {
    marks_.push_back({event.time, std::string(event.name), event.kind});
  } else {
    ++dropped_marks_;
  }
  return go_on;
}

}  // namespace dstrace::model
