// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/expected_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "analyzer/deepspeed/expected_model.h"

namespace dstrace::deepspeed {

ExpectedModel::ExpectedModel(const MemoryInputs& inputs)
    : in_(inputs), set_(inputs.settings) {
  out_.params = in_.shape.parameters.empty() ? in_.params : in_.shape.total();
  out_.sizes_known = !in_.shape.parameters.empty() || set_.stage != 3;
  partitions_ = std::max(set_.stage == 0 ? 1 : set_.partitions(), 1);
  width_ = set_.param_bytes;
  states_on_gpu_ = set_.offload_optimizer == Offload::kNone;
  weights_on_gpu_ = set_.stage < 3 || set_.offload_param == Offload::kNone;
  states_late_ = set_.states_at_first_step;
  old_names_ = set_.version < Version{0, 17, 2};
}

ExpectedMemory ExpectedModel::Run() {
  Shards();
  out_.temporaries_per_element =
      states_on_gpu_ ? OptimizerTemporaries(in_.optimizer, in_.torch_version)
                     : 0;
  Load();
  if (set_.stage == 3) {
    InitializeStage3();
    TrainStage3();
  } else {
    InitializeBelow3();
    TrainBelow3();
  }
  AddHostRows(set_, &out_);
  Communicators();
  Estimate();
  return std::move(out_);
}

ExpectedRow& ExpectedModel::Add(Phase phase, Tag tag, const char* name,
                                int64_t bytes, bool persistent,
                                std::string formula, std::string code) {
  out_.rows.push_back({phase, tag, name, bytes, persistent, false, false,
                       std::move(formula), std::move(code), Where::kDevice});
  return out_.rows.back();
}

void ExpectedModel::AddStates(int64_t bytes, const char* first_code) {
  Add(states_late_ ? Phase::kStep : Phase::kInitialize, Tag::kAdamStates,
      "Adam states", bytes, true, "8n", first_code);
}

void ExpectedModel::AddSubGroup(Phase phase, Tag tag, const char* name,
                                int64_t per_element, std::string code) {
  bool open = out_.sub_group_at_least;
  Add(phase, tag, name, per_element * out_.sub_group_elements, false,
      absl::StrFormat("%s%dS", open ? "at least " : "", per_element),
      std::move(code))
      .lower_bound = open;
}

void ExpectedModel::Shards() {
  if (in_.shape.parameters.empty()) {
    out_.shard_elements = CeilDivide(out_.params, partitions_);
    out_.sub_group_elements =
        set_.stage == 3 ? std::min(set_.sub_group_size, out_.shard_elements)
                        : out_.shard_elements;
    out_.sub_group_at_least =
        set_.stage == 3 && set_.sub_group_size < out_.shard_elements;
    return;
  }
  int64_t open = 0;
  int64_t largest = 0;
  for (const ParameterShape& one : in_.shape.parameters) {
    int64_t part = CeilDivide(one.elements, partitions_);
    out_.shard_elements += part;
    open += part;
    largest = std::max(largest, open);
    if (open < set_.sub_group_size) continue;
    sub_groups_.push_back(open);
    open = 0;
  }
  if (open > 0) sub_groups_.push_back(open);
  out_.sub_group_elements = set_.stage == 3 ? largest : out_.shard_elements;
}

int64_t ExpectedModel::FirstStep(int64_t temporaries) const {
  if (set_.stage != 3 || sub_groups_.empty()) {
    return 8 * out_.shard_elements + temporaries * out_.sub_group_elements;
  }
  int64_t states = 0;
  int64_t most = 0;
  for (int64_t group : sub_groups_) {
    states += 8 * group;
    most = std::max(most, states + temporaries * group);
  }
  return most;
}

int64_t ExpectedModel::LiveGather() const {
  int64_t largest = in_.shape.largest_parameter();
  int64_t full = std::min(GatherBuffers(), 2) * width_ * largest;
  // A partition on the host is brought to the GPU beside the buffer.
  bool brought = !weights_on_gpu_ && GatherBuffers() == 1;
  return full + (brought ? width_ * CeilDivide(largest, partitions_) : 0);
}

int ExpectedModel::GatherBuffers() const {
  if (set_.version < Version{0, 12, 4}) return 3;
  return set_.version < Version{0, 18, 5} ? 2 : 1;
}

int64_t ExpectedModel::TiedHead() const {
  if (set_.stage != 3 || !in_.shape.tied_head || !weights_on_gpu_) return 0;
  return width_ * CeilDivide(in_.shape.head_elements, partitions_);
}

void ExpectedModel::Load() {
  if (set_.stage != 3) {
    Add(Phase::kLoad, Tag::kShardedWeights, "full weights",
        width_ * out_.params, true, absl::StrFormat("%dP", width_),
        "the script (model to the GPU)");
    out_.load_live = out_.load_peak = width_ * out_.params;
    return;
  }
  int64_t shards = weights_on_gpu_ ? width_ * out_.shard_elements : 0;
  Add(Phase::kLoad, Tag::kShardedWeights, "sharded weights", shards, true,
      absl::StrFormat("%dn", width_),
      "_partition_param (runtime/zero/partition_parameters.py:1381)");
  int64_t head = TiedHead();
  if (head > 0) {
    Add(Phase::kLoad, Tag::kTiedHead,
        "partition of the output head before "
        "it was tied",
        head, true, absl::StrFormat("%d x head / partitions", width_),
        "_partition_param; its autograd history keeps the replaced "
        "parameter");
  }
  int64_t gather = LiveGather();
  if (gather > 0) {
    Add(Phase::kLoad, Tag::kCheckpointGather,
        "gather of the largest "
        "parameter",
        gather, false,
        absl::StrFormat("%d x %d x largest", std::min(GatherBuffers(), 2),
                        width_),
        GatherBuffers() == 1 ? "_allgather_params_sequential"
                             : "_allgather_params "
                               "(runtime/zero/partition_parameters.py:1614)")
        .upper_bound = true;
  } else {
    out_.notes.push_back(
        "without a model config the transient gathers of loading are "
        "unknown");
  }
  out_.load_live = shards + head;
  out_.load_peak = out_.load_live + gather;
}

void ExpectedModel::InitializeBelow3() {
  int64_t n = out_.shard_elements;
  int64_t on = states_on_gpu_ ? 1 : 0;
  int64_t t = out_.temporaries_per_element;
  Phase phase = Phase::kInitialize;
  Add(phase, Tag::kFlatWeights, "full weights", width_ * out_.params, true,
      absl::StrFormat("%dP", width_),
      "DeepSpeedZeroOptimizer.__init__ (runtime/zero/stage_1_and_2.py)");
  int64_t master = set_.stage == 0 && width_ == 4 ? 0 : on * 4 * n;
  Add(phase, Tag::kMasterWeights, "fp32 master weights", master, true, "4n",
      "DeepSpeedZeroOptimizer.__init__ (runtime/zero/stage_1_and_2.py)");
  Add(phase, Tag::kGradientBuffer, "fp32 gradients", on * 4 * n, false, "4n",
      "initialize_optimizer_states (runtime/zero/stage_1_and_2.py:636)");
  if (!states_late_) {
    AddStates(on * 8 * n, "initialize_optimizer_states > optimizer.step");
    Add(phase, Tag::kOptimizerTemporaries, "optimizer temporaries", t * n,
        false, absl::StrFormat("%dn", t),
        "initialize_optimizer_states > torch/optim _multi_tensor_adam(w)");
  }
  int64_t early = states_late_ ? 0 : on * 8 * n;
  out_.initialize_steady = width_ * out_.params + master + early;
  out_.step_steady = out_.initialize_steady + on * 8 * n - early;
  out_.optimizer_build_peak =
      out_.initialize_steady + on * 4 * n + (states_late_ ? 0 : t * n);
  out_.initialize_peak = out_.optimizer_build_peak;
}

void ExpectedModel::TrainBelow3() {
  int64_t n = out_.shard_elements;
  int64_t held = set_.stage == 2 ? n : out_.params;
  int64_t gradients = set_.grad_bytes * held;
  if (set_.stage == 2 && !states_on_gpu_) gradients = 0;
  Add(Phase::kBackward, Tag::kGradients,
      set_.stage == 2 ? "gradient partition" : "gradients", gradients, true,
      absl::StrFormat("%d%s", set_.grad_bytes, set_.stage == 2 ? "n" : "P"),
      "the backward pass");
  int64_t bucket = set_.stage > 0 && set_.contiguous_gradients
                       ? width_ * set_.reduce_bucket_size
                       : 0;
  if (bucket > 0) {
    Add(Phase::kBackward, Tag::kGradients, "gradient bucket", bucket, false,
        absl::StrFormat("%d x reduce_bucket_size", width_),
        "setup_buckets (runtime/zero/stage_1_and_2.py)")
        .upper_bound = true;
  }
  out_.training_peak = out_.step_steady + gradients + bucket;
  if (states_late_ && states_on_gpu_) {
    AddStates(8 * n, "torch/optim _init_group; since 0.13.2 in the first step");
  }
  int64_t step = states_on_gpu_ ? 4 * n : 0;
  Add(Phase::kStep, Tag::kGradientBuffer, "fp32 gradients", step, false, "4n",
      "step (runtime/zero/stage_1_and_2.py)");
  Add(Phase::kStep, Tag::kOptimizerTemporaries, "optimizer temporaries",
      out_.temporaries_per_element * n, false,
      absl::StrFormat("%dn", out_.temporaries_per_element),
      "torch/optim _multi_tensor_adam(w)");
  out_.step_peak =
      out_.step_steady + gradients + step + out_.temporaries_per_element * n;
  out_.notes.push_back("activations are not modelled");
}

void ExpectedModel::Communicators() {
  if (set_.world_size <= 1) {
    out_.communicators = set_.world_size;
    return;
  }
  out_.communicators = 1;  // the world's
  if (set_.stage != 3) return;
  int64_t shard = set_.mics_shard_size;
  if (shard > 1) ++out_.communicators;
  if (shard > 0 && shard < set_.world_size) ++out_.communicators;
  if (shard > 0 && set_.mics_hierarchical) out_.communicators += 2;
  if (set_.hpz_partition_size > 1) ++out_.communicators;
}

void ExpectedModel::Estimate() {
  int64_t world = std::max(set_.world_size, 1);
  DeepSpeedEstimate& estimate = out_.estimate;
  if (set_.stage < 2) return;
  int64_t layer = 4 * in_.shape.largest_layer();
  estimate.largest_layer_known = layer > 0;
  if (set_.stage == 3) {
    estimate.no_offload = layer + 18 * out_.params / world;
    estimate.optimizer_offload = layer + 2 * out_.params / world;
    estimate.both_offload = layer;
    return;
  }
  estimate.no_offload = set_.version < Version{0, 14, 3}
                            ? 4 * out_.params + 16 * out_.params / world
                            : 2 * out_.params + 18 * out_.params / world;
  estimate.optimizer_offload = 2 * out_.params;
}

int64_t OptimizerTemporaries(OptimizerKind optimizer,
                             const Version& torch_version) {
  if (optimizer == OptimizerKind::kFusedAdam) return 0;
  // Until torch 2.0 the denominator was a second list beside the roots.
  return torch_version < Version{2, 1, 0} ? 8 : 4;
}

ExpectedMemory ExpectMemory(const MemoryInputs& inputs) {
  return ExpectedModel(inputs).Run();
}

}  // namespace dstrace::deepspeed
