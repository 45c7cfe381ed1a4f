// SPDX-License-Identifier: Apache-2.0
//
// The first replay over a trace of DeepSpeed: where its phases begin, end and
// peak. Not thread-safe.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_PHASES_H_
#define DSTRACE_ANALYZER_DEEPSPEED_PHASES_H_

#include <cstdint>
#include <map>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "analyzer/deepspeed/stack_facts.h"
#include "analyzer/model/replay.h"

namespace dstrace::deepspeed {

// An instant: after the event with this number, 0 for before all.
struct Instant {
  uint64_t ordinal = 0;
  uint64_t time_ns = 0;
};

// Where the trace of one device is to be looked at.
struct PhasePlan {
  struct Peak {
    Instant at;
    uint64_t live = 0;
  };
  Instant load_end;
  Instant load_settled;  // the last with most reserved in the load phase
  std::optional<Instant> initialize_end;
  std::optional<Instant> step_end;          // of the last step
  std::map<Phase, Peak> peaks;              // of live bytes
  uint64_t communicators = 0;               // opened until load_settled
  std::optional<model::OutOfMemory> oom;    // the last one of torch
  std::optional<model::DeviceEvent> error;  // the last failed device allocation
  std::optional<model::Anchor> first_sample;
};

class PhasePass : public model::StateReplay<PhasePass> {
 public:
  PhasePass(const model::Stacks& stacks, int default_device,
            const StackFacts& facts)
      : StateReplay(stacks, default_device), facts_(facts) {}

  bool OnTensorAlloc(const model::TensorAlloc& event) override;
  bool OnDevice(const model::DeviceEvent& event) override;
  bool OnOutOfMemory(const model::OutOfMemory& event) override;
  bool After(uint64_t time_ns, int device);

  void Finish() { state_.Finish(); }
  // The GPU with most tensor bytes, or `wanted`; nullopt: no tensor was seen.
  [[nodiscard]] std::optional<int> PickDevice(std::optional<int> wanted) const;
  [[nodiscard]] PhasePlan PlanOf(int device) const;

 private:
  struct Track {
    PhasePlan plan;
    Phase phase = Phase::kLoad;
    uint64_t most_live = 0;
    uint64_t most_reserved = 0;
    bool loading_seen = false;
    bool initialize_ended = false;
    bool left_step = false;
    Instant last;
  };

  void Enter(int device, model::StackId stack);
  void EndPhases(Phase before, const StackFact& fact, Track* track) const;
  static void UpdateLoad(uint64_t reserved, const Instant& now, Track* track);

  const StackFacts& facts_;
  std::map<int, Track> tracks_;
  absl::flat_hash_set<uint64_t> communicators_;
};

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_PHASES_H_
