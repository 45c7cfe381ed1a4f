// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/measure_trace.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analyzer/deepspeed/phases.h"
#include "analyzer/deepspeed/segments.h"
#include "analyzer/deepspeed/stack_facts.h"
#include "analyzer/model/snapshot.h"

namespace dstrace::deepspeed {
namespace {

using model::Layer;
using model::Snapshot;

int64_t Signed(uint64_t bytes) { return static_cast<int64_t>(bytes); }

// The second replay: calls back at the instants asked for.
class LookPass : public model::StateReplay<LookPass> {
 public:
  using Look = std::function<void(const Snapshot&, const Segments&, Measured*)>;

  LookPass(const model::Stacks& stacks, int default_device, int device,
           const PhasePlan& plan, Measured* measured)
      : StateReplay(stacks, default_device),
        device_(device),
        plan_(plan),
        measured_(measured) {}

  void At(const Instant& instant, Look look) {
    looks_.push_back({instant, std::move(look)});
  }
  void Sort() {
    std::stable_sort(looks_.begin(), looks_.end(),
                     [](const auto& a, const auto& b) {
                       return a.first.ordinal < b.first.ordinal;
                     });
  }

  bool OnTensorAlloc(const model::TensorAlloc& event) override {
    if (model::DeviceOfTensor(event.torch_device) == device_) {
      segments_.Apply(event);
    }
    return Take(event);
  }
  bool OnTensorFree(const model::TensorFree& event) override {
    if (model::DeviceOfTensor(event.torch_device) == device_) {
      segments_.Apply(event);
    }
    return Take(event);
  }
  bool OnDevice(const model::DeviceEvent& event) override {
    if (state_.device_layer().DeviceOf(event) == device_ && IsTorch(event)) {
      segments_.Apply(event);
    }
    return Take(event);
  }

  bool After(uint64_t /*time_ns*/, int /*device*/) {
    while (done_ < looks_.size() && looks_[done_].first.ordinal <= ordinal_) {
      const auto& [instant, look] = looks_[done_++];
      look(model::TakeSnapshot(state_, device_, instant.time_ns, "",
                               plan_.first_sample),
           segments_, measured_);
    }
    return done_ < looks_.size();
  }

 private:
  // The end of an allocation is told by its address; a free may come from
  // anywhere. Without native stacks nobody's allocations are torch's.
  bool IsTorch(const model::DeviceEvent& event) {
    bool begins = event.kind == model::DeviceKind::kAlloc ||
                  event.kind == model::DeviceKind::kMap;
    if (!begins) return true;
    model::OwnerId owner = state_.owners().Of(event.stack);
    return owner == model::kOwnerTorch || owner == model::kOwnerUnknown;
  }

  const int device_;
  const PhasePlan& plan_;
  Measured* const measured_;
  Segments segments_;
  std::vector<std::pair<Instant, Look>> looks_;
  size_t done_ = 0;
};

class Looks {
 public:
  Looks(const StackFacts& facts, const PhasePlan& plan)
      : facts_(facts), plan_(plan) {}

  void Register(LookPass* pass) const {
    pass->At(plan_.load_settled,
             [this](const Snapshot& now, const Segments& segments,
                    Measured* out) { Settled(now, segments, out); });
    // Live tensors at its end; the cache above keeps its own instant.
    pass->At(plan_.load_end,
             [this](const Snapshot& now, const Segments&, Measured* out) {
               PhaseIn(out, Phase::kLoad).live = Signed(now.ledger.torch_live);
               AddTensors(now, Phase::kLoad, RowKind::kLive, out);
             });
    // After running out of memory nothing says what initialize would keep.
    if (plan_.initialize_end && !plan_.oom) {
      pass->At(*plan_.initialize_end,
               [this](const Snapshot& now, const Segments&, Measured* out) {
                 FillState(now, &PhaseIn(out, Phase::kInitialize));
                 AddTensors(now, Phase::kInitialize, RowKind::kLive, out);
                 AddPinned(now, Phase::kInitialize, out);
               });
    }
    if (plan_.step_end) {
      pass->At(*plan_.step_end, [this](const Snapshot& now, const Segments&,
                                       Measured* out) {
        PhaseIn(out, Phase::kStep).end_live = Signed(now.ledger.torch_live);
        AddTensors(now, Phase::kStep, RowKind::kLive, out);
      });
    }
    for (const auto& [phase, peak] : plan_.peaks) {
      if (peak.live == 0) continue;
      pass->At(peak.at, [this, phase = phase](const Snapshot& now,
                                              const Segments&, Measured* out) {
        AtPeak(now, phase, out);
      });
    }
  }

 private:
  static MeasuredPhase& PhaseIn(Measured* measured, Phase phase) {
    for (MeasuredPhase& one : measured->phases) {
      if (one.phase == phase) return one;
    }
    measured->phases.push_back({});
    measured->phases.back().phase = phase;
    return measured->phases.back();
  }

  static void FillState(const Snapshot& now, MeasuredPhase* phase) {
    phase->live = Signed(now.ledger.torch_live);
    phase->reserved = Signed(now.ledger.torch_reserved);
    phase->stream_pending = Signed(now.ledger.torch_stream_pending);
    phase->host_pinned = Signed(now.ledger.host_pinned);
    if (now.ledger.device_used_known) {
      phase->device_used = Signed(now.ledger.device_used);
    }
  }

  void AddTensors(const Snapshot& now, Phase phase, RowKind kind,
                  Measured* out) const {
    for (const model::Holding& one : now.holdings) {
      if (one.layer != Layer::kTensor) continue;
      const StackFact& fact = facts_.Of(one.stack);
      out->rows.push_back(
          {phase, kind, fact.tag, Signed(one.bytes), fact.frames});
    }
  }

  void AddPinned(const Snapshot& now, Phase phase, Measured* out) const {
    for (const model::Holding& one : now.holdings) {
      if (one.layer != Layer::kHostPinned) continue;
      const StackFact& fact = facts_.Of(one.stack);
      out->rows.push_back(
          {phase, RowKind::kPinned, fact.tag, Signed(one.bytes), fact.frames});
    }
  }

  void Settled(const Snapshot& now, const Segments& segments,
               Measured* out) const {
    FillState(now, &PhaseIn(out, Phase::kLoad));
    AddPinned(now, Phase::kLoad, out);
    for (const auto& [stack, bytes] : segments.Empty()) {
      const StackFact& fact = facts_.Of(stack);
      out->rows.push_back(
          {Phase::kLoad, RowKind::kCached, fact.tag, bytes, fact.frames});
    }
    auto nccl = now.ledger.libraries.find("nccl");
    if (nccl != now.ledger.libraries.end()) {
      out->nccl_bytes = Signed(nccl->second);
    }
    if (now.ledger.context > 0) {
      out->context_bytes = Signed(now.ledger.context);
    }
    out->communicators = static_cast<int>(plan_.communicators);
  }

  void AtPeak(const Snapshot& now, Phase phase, Measured* out) const {
    MeasuredPhase& in = PhaseIn(out, phase);
    in.peak = Signed(now.ledger.torch_live);
    bool training = phase != Phase::kLoad && phase != Phase::kInitialize;
    if (training) FillState(now, &in);
    AddTensors(now, phase, RowKind::kPeak, out);
  }

  const StackFacts& facts_;
  const PhasePlan& plan_;
};

void FillOom(const PhasePlan& plan, const StackFacts& facts, Measured* out) {
  if (!plan.oom) return;
  MeasuredOom oom;
  oom.request = Signed(plan.oom->size);
  oom.live = Signed(plan.oom->allocated);
  oom.reserved = Signed(plan.oom->reserved);
  // Where the driver itself refused, what it still had tells the limit; a cap
  // of torch's own is not in the trace.
  if (plan.error && plan.error->total_bytes > 0) {
    oom.limit = Signed(plan.oom->reserved + plan.error->free_bytes);
  }
  oom.stack = facts.Of(plan.oom->stack).frames;
  out->oom = std::move(oom);
}

void FillProcess(const model::TraceFacts& trace, const StackFacts& facts,
                 TraceMeasure* out) {
  out->rank = trace.process.rank;
  out->world_size = trace.process.world_size;
  auto torch = trace.process.properties.find("torch.version");
  if (torch != trace.process.properties.end()) {
    auto version = ParseVersion(torch->second);
    if (version.ok()) out->torch_version = *version;
  }
  for (const StackFact& fact : facts.all()) {
    out->initialize = out->initialize || fact.initialize;
    if (fact.tag == Tag::kAdamStates) {
      out->states_at_first_step =
          out->states_at_first_step.value_or(true) && !fact.initialize;
    }
    for (const std::string& frame : fact.frames) {
      if (frame.find("/deepspeed/") != std::string::npos) {
        out->deepspeed = true;
      }
    }
  }
}

// Construction of modules, outermost ones included.
int BuildDepth(const MeasuredRow& row) {
  return static_cast<int>(std::count_if(
      row.stack.begin(), row.stack.end(), [](const std::string& frame) {
        return frame.find("__init__ (") != std::string::npos;
      }));
}

}  // namespace

absl::StatusOr<TraceMeasure> MeasureTrace(
    const model::EventSource& source,
    const std::vector<model::FrameText>& frames, std::optional<int> device) {
  const model::TraceFacts& trace = source.facts();
  StackFacts facts(trace.stacks, frames);
  const auto& gpus = trace.process.gpus;
  int first = gpus.empty() ? 0 : gpus.front().index;
  PhasePass phases(trace.stacks, first, facts);
  if (auto status = source.Replay(phases); !status.ok()) return status;
  phases.Finish();
  std::optional<int> picked = phases.PickDevice(device);
  if (!picked) {
    return absl::NotFoundError("the trace has no tensor on that GPU");
  }
  PhasePlan plan = phases.PlanOf(*picked);
  TraceMeasure out;
  out.device = *picked;
  LookPass pass(trace.stacks, first, *picked, plan, &out.measured);
  Looks looks(facts, plan);
  looks.Register(&pass);
  pass.Sort();
  if (auto status = source.Replay(pass); !status.ok()) return status;
  FillOom(plan, facts, &out.measured);
  FillProcess(trace, facts, &out);
  return out;
}

void TagTiedHead(int64_t head_bytes, Measured* measured) {
  constexpr int64_t kRounding = 1 << 20;
  for (Phase phase : {Phase::kLoad, Phase::kInitialize}) {
    std::vector<MeasuredRow*> alike;
    for (MeasuredRow& row : measured->rows) {
      if (row.phase == phase && row.kind == RowKind::kLive &&
          row.tag == Tag::kShardedWeights && row.bytes >= head_bytes &&
          row.bytes < head_bytes + kRounding) {
        alike.push_back(&row);
      }
    }
    // While loading, the embedding's partition is as large. Later that one is
    // in the flat buffer.
    if (alike.size() < (phase == Phase::kLoad ? 2u : 1u)) continue;
    (*std::min_element(alike.begin(), alike.end(),
                       [](const MeasuredRow* a, const MeasuredRow* b) {
                         return BuildDepth(*a) < BuildDepth(*b);
                       }))
        ->tag = Tag::kTiedHead;
  }
}

}  // namespace dstrace::deepspeed
