// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/phases.h"

namespace dstrace::deepspeed {

using model::DeviceKind;

bool PhasePass::OnTensorAlloc(const model::TensorAlloc& event) {
  Enter(model::DeviceOfTensor(event.torch_device), event.stack);
  return Take(event);
}

bool PhasePass::OnDevice(const model::DeviceEvent& event) {
  int device = state_.device_layer().DeviceOf(event);
  bool alloc = event.kind == DeviceKind::kAlloc ||
               event.kind == DeviceKind::kPhysicalCreate;
  if (device >= 0 && alloc) Enter(device, event.stack);
  bool taken = Take(event);
  if (event.kind == DeviceKind::kCommunicator && event.result == 0) {
    communicators_.insert(event.handle);
  }
  if (device >= 0 && alloc && event.result != 0) {
    tracks_[device].plan.error = event;
  }
  return taken;
}

bool PhasePass::OnOutOfMemory(const model::OutOfMemory& event) {
  int device = model::DeviceOfTensor(event.torch_device);
  if (device >= 0) {
    Enter(device, event.stack);
    tracks_[device].plan.oom = event;
  }
  return Pass(event);
}

// Called before the event is applied: the phase that ends must not count it.
void PhasePass::Enter(int device, model::StackId stack) {
  if (device < 0) return;
  Track& track = tracks_[device];
  const StackFact& fact = facts_.Of(stack);
  if (fact.load) track.loading_seen = true;
  Phase before = track.phase;
  if (fact.initialize) {
    track.phase = Phase::kInitialize;
  } else if (fact.phase == Phase::kForward || fact.phase == Phase::kBackward ||
             fact.phase == Phase::kStep) {
    // A forward before anything was loaded is not training.
    if (before != Phase::kLoad || track.loading_seen) track.phase = fact.phase;
  }
  if (before == Phase::kLoad && track.phase != Phase::kLoad) {
    track.plan.load_end = track.last;
  }
  EndPhases(before, fact, &track);
}

// A phase ends with its last allocation and what is freed before the next one
// that belongs to another. At the end of a trace frees do not count: there the
// whole process is being torn down.
void PhasePass::EndPhases(Phase before, const StackFact& fact,
                          Track* track) const {
  // The event itself still counts: it is number ordinal_ + 1.
  const Instant with_it{ordinal_ + 1, track->last.time_ns};
  if (fact.initialize) {
    track->plan.initialize_end = with_it;
    track->initialize_ended = false;
  } else if (before == Phase::kInitialize && !track->initialize_ended) {
    track->plan.initialize_end = track->last;
    track->initialize_ended = true;
  }
  if (before == Phase::kStep && track->phase != Phase::kStep) {
    track->plan.step_end = track->last;
    track->left_step = true;
  } else if (track->phase == Phase::kStep && !track->left_step) {
    track->plan.step_end = with_it;
  }
}

void PhasePass::UpdateLoad(uint64_t reserved, const Instant& now,
                           Track* track) {
  track->plan.load_end = now;
  if (reserved < track->most_reserved) return;
  track->most_reserved = reserved;
  track->plan.load_settled = now;
}

bool PhasePass::After(uint64_t time_ns, int device) {
  if (device < 0) return true;
  Track& track = tracks_[device];
  track.last = {ordinal_, time_ns};
  uint64_t live = state_.LevelOf(device).live;
  if (track.phase == Phase::kLoad) {
    UpdateLoad(state_.TorchReserved(device), track.last, &track);
    track.plan.communicators = communicators_.size();
  }
  track.most_live = std::max(track.most_live, live);
  PhasePlan::Peak& peak = track.plan.peaks[track.phase];
  if (live > peak.live) peak = {track.last, live};
  return true;
}

std::optional<int> PhasePass::PickDevice(std::optional<int> wanted) const {
  std::optional<int> best;
  uint64_t most = 0;
  for (const auto& [device, track] : tracks_) {
    if (track.most_live == 0 || (wanted && device != *wanted)) continue;
    if (track.most_live > most) best = device;
    most = std::max(most, track.most_live);
  }
  return best;
}

PhasePlan PhasePass::PlanOf(int device) const {
  auto found = tracks_.find(device);
  PhasePlan plan = found != tracks_.end() ? found->second.plan : PhasePlan{};
  if (const auto* known = state_.Find(device)) {
    plan.first_sample = known->first_anchor;
  }
  return plan;
}

}  // namespace dstrace::deepspeed
