// SPDX-License-Identifier: Apache-2.0
//
// What offloading puts on the host, for one rank. Sources: DeepSpeed 0.10.1 and
// 0.19.6, runtime/zero/stage3.py and partition_parameters.py; the two agree.
#include <utility>

#include "absl/strings/str_format.h"
#include "analyzer/deepspeed/expected_memory.h"

namespace dstrace::deepspeed {
namespace {

class HostRows {
 public:
  HostRows(const Settings& settings, ExpectedMemory* memory)
      : set_(settings), out_(*memory), n_(memory->shard_elements) {}

  // Below stage 3 the optimizer alone can leave the GPU.
  void AddAll() {
    if (set_.stage == 3 && set_.offload_param == Offload::kCpu) Weights();
    if (set_.offload_optimizer == Offload::kCpu) Optimizer();
    if (out_.pinned_load + out_.pinned_steady == 0) return;
    out_.notes.push_back(
        "torch takes each pinned block as the next power of two and keeps it "
        "when it is free: a trace may show twice the pinned bytes expected "
        "here");
  }

 private:
  void Add(Phase phase, Tag tag, const char* name, int64_t bytes, bool pinned,
           bool persistent, std::string formula, std::string code) {
    out_.rows.push_back({phase, tag, name, bytes, persistent, false, false,
                         std::move(formula), std::move(code),
                         pinned ? Where::kPinnedHost : Where::kHost});
    if (!persistent) return;
    if (phase == Phase::kLoad) {
      out_.pinned_load += pinned ? bytes : 0;
    } else {
      (pinned ? out_.pinned_steady : out_.host_steady) += bytes;
    }
  }

  void Weights() {
    int64_t bytes = set_.param_bytes * n_;
    std::string formula = absl::StrFormat("%dn", set_.param_bytes);
    Add(Phase::kLoad, Tag::kShardedWeights, "sharded weights, on the host",
        bytes, set_.pin_param, true, formula,
        "_partition_param (runtime/zero/partition_parameters.py)");
    // Pinned whatever the config says.
    Add(Phase::kInitialize, Tag::kFlatWeights,
        "16-bit weights, flat, on the host", bytes, true, true, formula,
        "_create_param_groups_fp16_flat_cpu_memory (runtime/zero/stage3.py)");
  }

  void Optimizer() {
    Phase phase = Phase::kInitialize;
    Add(phase, Tag::kMasterWeights, "fp32 master weights, on the host", 4 * n_,
        false, true, "4n", "_create_fp32_partitions (runtime/zero/stage3.py)");
    Add(set_.states_at_first_step ? Phase::kStep : phase, Tag::kAdamStates,
        "Adam states, on the host", 8 * n_, false, true, "8n",
        "_optimizer_step");
    if (set_.stage != 3) return;
    Add(phase, Tag::kGradientBuffer, "fp32 gradients, on the host", 4 * n_,
        set_.pin_optimizer, true, "4n",
        "initialize_optimizer_states subgroup_gradient_buffer "
        "(runtime/zero/stage3.py)");
    Add(phase, Tag::kGradients, "gradient partitions, on the host",
        set_.grad_bytes * n_, set_.pin_optimizer, true,
        absl::StrFormat("%dn", set_.grad_bytes),
        "_setup_for_real_optimizer grad_partitions_flat_buffer "
        "(runtime/zero/stage3.py)");
  }

  const Settings& set_;
  ExpectedMemory& out_;
  const int64_t n_;
};

}  // namespace

void AddHostRows(const Settings& settings, ExpectedMemory* memory) {
  HostRows(settings, memory).AddAll();
}

}  // namespace dstrace::deepspeed
