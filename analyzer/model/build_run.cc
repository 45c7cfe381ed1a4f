// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/build_run.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/model/snapshot.h"
#include "analyzer/model/totals_pass.h"

namespace dstrace::model {
namespace {

// One snapshot to take in the second replay.
struct Target {
  uint64_t ordinal = 0;
  uint64_t time_ns = 0;
  int device = 0;
  std::string name;
  std::optional<Anchor> first_sample;
};

// The second replay.
class SnapshotPass : public StateReplay<SnapshotPass> {
 public:
  SnapshotPass(const Stacks& stacks, int default_device,
               std::vector<Target> targets)
      : StateReplay(stacks, default_device), targets_(std::move(targets)) {
    std::stable_sort(
        targets_.begin(), targets_.end(),
        [](const Target& a, const Target& b) { return a.ordinal < b.ordinal; });
    snapshots_.reserve(targets_.size());
    TakeDue();  // what is asked for before the first event
  }

  bool After(uint64_t /*time_ns*/, int /*device*/) {
    if (!done() && targets_[snapshots_.size()].ordinal == ordinal_) TakeDue();
    return !done();
  }

  [[nodiscard]] bool done() const {
    return snapshots_.size() == targets_.size();
  }
  // Moves the snapshot of that name and device out.
  Snapshot Take(int device, const std::string& name) {
    for (size_t i = 0; i < snapshots_.size(); ++i) {
      if (targets_[i].device == device && targets_[i].name == name) {
        return std::move(snapshots_[i]);
      }
    }
    return {};
  }

 private:
  void TakeDue() {
    while (!done() && targets_[snapshots_.size()].ordinal <= ordinal_) {
      const Target& target = targets_[snapshots_.size()];
      snapshots_.push_back(TakeSnapshot(state_, target.device, target.time_ns,
                                        target.name, target.first_sample));
    }
  }

  std::vector<Target> targets_;
  std::vector<Snapshot> snapshots_;
};

std::string NameOf(const At& at) {
  if (at.kind == At::Kind::kMark) return absl::StrCat("mark:", at.mark);
  return absl::StrFormat("%gs", static_cast<double>(at.time_ns) / 1e9);
}

absl::Status NoSuchMark(const std::string& name,
                        const std::vector<MarkPoint>& marks) {
  constexpr size_t kMaxShown = 10;
  std::set<std::string> known;
  for (const MarkPoint& mark : marks) {
    if (known.size() < kMaxShown && !mark.name.empty()) known.insert(mark.name);
  }
  std::string text = absl::StrCat("no mark \"", name, "\" in the trace");
  if (known.empty()) return absl::NotFoundError(text + "; it has none");
  absl::StrAppend(&text, "; it has:");
  for (const std::string& mark : known) absl::StrAppend(&text, " ", mark);
  return absl::NotFoundError(text);
}

std::optional<Anchor> FirstSample(const MemoryState& state, int device) {
  const MemoryState::PerDevice* const known = state.Find(device);
  return known == nullptr ? std::nullopt : known->first_anchor;
}

absl::flat_hash_map<StackId, uint64_t> DeviceBytesByStack(
    const Snapshot& snapshot) {
  absl::flat_hash_map<StackId, uint64_t> result;
  for (const Holding& holding : snapshot.holdings) {
    if (holding.layer == Layer::kDevice) result[holding.stack] += holding.bytes;
  }
  return result;
}

class Builder {
 public:
  Builder(EventSource& source, const BuildOptions& options)
      : source_(source),
        options_(options),
        default_device_(DefaultDevice(source.facts())),
        totals_(source.facts(), default_device_, options) {}

  absl::StatusOr<Run> Build();

 private:
  static int DefaultDevice(const TraceFacts& facts) {
    const std::vector<Gpu>& gpus = facts.process.gpus;
    const bool known = !gpus.empty() && gpus.front().index < kMaxDevices;
    return known ? gpus.front().index : 0;
  }
  absl::Status CheckRequest() const;
  [[nodiscard]] std::vector<Target> Targets();
  Device FinishDevice(int index, TotalsPass::DeviceTrack& track,
                      SnapshotPass& snapshots);
  void FillGrowth(TotalsPass::DeviceTrack& track, Device* device);
  void FillRun(Run* run);

  EventSource& source_;
  const BuildOptions& options_;
  const int default_device_;
  TotalsPass totals_;
};

absl::Status Builder::CheckRequest() const {
  const uint64_t end = source_.facts().process.duration_ns;
  if (options_.at.kind == At::Kind::kTime && options_.at.time_ns > end) {
    return absl::OutOfRangeError(
        absl::StrFormat("%s is after the end of the trace at %.9gs",
                        NameOf(options_.at), static_cast<double>(end) / 1e9));
  }
  const uint64_t start = source_.facts().history_start_ns;
  if (options_.at.kind == At::Kind::kTime && options_.at.time_ns < start) {
    return absl::OutOfRangeError(
        absl::StrFormat("%s is before the history, which starts at %.9gs",
                        NameOf(options_.at), static_cast<double>(start) / 1e9));
  }
  return absl::OkStatus();
}

std::vector<Target> Builder::Targets() {
  std::vector<Target> targets;
  for (const auto& [index, track] : totals_.devices()) {
    const std::optional<Anchor> first = FirstSample(totals_.state(), index);
    targets.push_back(
        {track.peak.ordinal, track.peak.time_ns, index, "peak", first});
    if (const auto& place = totals_.requested(); place.has_value()) {
      targets.push_back(
          {place->ordinal, place->time_ns, index, NameOf(options_.at), first});
    }
  }
  return targets;
}

absl::StatusOr<Run> Builder::Build() {
  if (const absl::Status status = CheckRequest(); !status.ok()) return status;
  if (const absl::Status status = source_.Replay(totals_); !status.ok()) {
    return status;
  }
  totals_.Finish();
  if (options_.at.kind == At::Kind::kMark && !totals_.requested()) {
    return NoSuchMark(options_.at.mark, totals_.marks());
  }
  SnapshotPass snapshots(source_.facts().stacks, default_device_, Targets());
  if (!snapshots.done()) {
    const absl::Status status = source_.Replay(snapshots);
    if (!status.ok()) return status;
    if (!snapshots.done()) {
      return absl::InternalError("two replays of the trace differ");
    }
  }
  Run run;
  for (auto& [index, track] : totals_.devices()) {
    run.devices.push_back(FinishDevice(index, track, snapshots));
  }
  FillRun(&run);
  return run;
}

Device Builder::FinishDevice(int index, TotalsPass::DeviceTrack& track,
                             SnapshotPass& snapshots) {
  Device device;
  device.index = index;
  device.peak_time_ns = track.peak.time_ns;
  device.timeline = track.timeline.Finish();
  device.snapshots.push_back(snapshots.Take(index, "peak"));
  const uint64_t end = source_.facts().process.duration_ns;
  const MemoryState& state = totals_.state();
  device.snapshots.push_back(
      TakeSnapshot(state, index, end, "end", FirstSample(state, index)));
  if (totals_.requested().has_value()) {
    device.snapshots.push_back(snapshots.Take(index, NameOf(options_.at)));
  }
  if (const auto* const known = state.Find(index); known != nullptr) {
    device.torch_check = known->check;
  }
  FillGrowth(track, &device);
  return device;
}

void Builder::FillGrowth(TotalsPass::DeviceTrack& track, Device* device) {
  Owners owners(source_.facts().stacks);
  const auto at_peak = DeviceBytesByStack(device->snapshots[0]);
  const auto at_end = DeviceBytesByStack(device->snapshots[1]);
  const auto bytes_in = [](const auto& table, StackId stack) {
    const auto found = table.find(stack);
    return found == table.end() ? uint64_t{0} : found->second;
  };
  for (auto& [stack, growth] : track.growth) {
    growth.owner = owners.Name(owners.Of(stack));
    growth.live_at_peak = bytes_in(at_peak, stack);
    growth.live_at_end = bytes_in(at_end, stack);
    device->growth.push_back(std::move(growth));
  }
  std::sort(device->growth.begin(), device->growth.end(),
            [](const Growth& a, const Growth& b) {
              return a.bytes != b.bytes ? a.bytes > b.bytes : a.stack < b.stack;
            });
}

void Builder::FillRun(Run* run) {
  run->failures = std::move(totals_.failures());
  run->marks = std::move(totals_.marks());
  run->groups = totals_.state().device_layer().groups().all();
  run->cupti = totals_.cupti();
  run->unmatched_tensor_frees =
      totals_.state().tensor_layer().unmatched_frees();
  run->unmatched_device_frees =
      totals_.state().device_layer().unmatched_frees();
  TraceFacts facts = source_.ReleaseFacts();
  run->process = std::move(facts.process);
  run->stacks = std::move(facts.stacks);
  run->losses = std::move(facts.losses);
  run->notes = std::move(facts.notes);
  run->event_count = facts.event_count;
  run->file_bytes = facts.file_bytes;
  run->history_start_ns = facts.history_start_ns;
  run->log_limit_bytes = facts.log_limit_bytes;
  run->tracer_bytes = facts.tracer_bytes;
  if (const uint64_t more = totals_.dropped_failures(); more > 0) {
    run->notes.push_back(absl::StrCat(more, " further failures not listed"));
  }
  if (const uint64_t more = totals_.dropped_marks(); more > 0) {
    run->notes.push_back(absl::StrCat(more, " further marks not listed"));
  }
}

}  // namespace

absl::StatusOr<Run> BuildRun(EventSource& source, const BuildOptions& options) {
  return Builder(source, options).Build();
}

}  // namespace dstrace::model
