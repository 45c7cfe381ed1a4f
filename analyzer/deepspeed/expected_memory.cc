// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/expected_memory.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace dstrace::deepspeed {
namespace {

int64_t CeilDivide(int64_t value, int64_t by) { return (value + by - 1) / by; }

class Model {
 public:
  explicit Model(const MemoryInputs& inputs)
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

  ExpectedMemory Run() {
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

 private:
  ExpectedRow& Add(Phase phase, Tag tag, const char* name, int64_t bytes,
                   bool persistent, std::string formula, std::string code) {
    out_.rows.push_back({phase, tag, name, bytes, persistent, false, false,
                         std::move(formula), std::move(code), Where::kDevice});
    return out_.rows.back();
  }

  // Where the states are made: in initialize, or in the first step.
  void AddStates(int64_t bytes, const char* first_code) {
    Add(states_late_ ? Phase::kStep : Phase::kInitialize, Tag::kAdamStates,
        "Adam states", bytes, true, "8n", first_code);
  }

  // A part that has S in it.
  void AddSubGroup(Phase phase, Tag tag, const char* name, int64_t per_element,
                   std::string code) {
    bool open = out_.sub_group_at_least;
    Add(phase, tag, name, per_element * out_.sub_group_elements, false,
        absl::StrFormat("%s%dS", open ? "at least " : "", per_element),
        std::move(code))
        .lower_bound = open;
  }

  // n and S. A sub-group is closed by the partition that reaches
  // sub_group_size, so it may exceed it by nearly one partition.
  void Shards() {
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

  // What the states and temporaries of the optimizer's first step need at
  // most: it takes the sub-groups one after the other. Without the sizes of
  // the parameters the last one counts as a full one.
  int64_t FirstStep(int64_t temporaries) const {
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

  // Buffers alive at once while one parameter is gathered. Before 0.12.4 torch
  // makes a third one, a flattened copy, and drops it before DeepSpeed makes
  // its last: it stays in the allocator.
  int64_t LiveGather() const {
    int64_t largest = in_.shape.largest_parameter();
    int64_t full = std::min(GatherBuffers(), 2) * width_ * largest;
    // A partition on the host is brought to the GPU beside the buffer.
    bool brought = !weights_on_gpu_ && GatherBuffers() == 1;
    return full + (brought ? width_ * CeilDivide(largest, partitions_) : 0);
  }

  // Full-size buffers that one gather of one parameter needs.
  int GatherBuffers() const {
    if (set_.version < Version{0, 12, 4}) return 3;
    return set_.version < Version{0, 18, 5} ? 2 : 1;
  }

  int64_t TiedHead() const {
    if (set_.stage != 3 || !in_.shape.tied_head || !weights_on_gpu_) return 0;
    return width_ * CeilDivide(in_.shape.head_elements, partitions_);
  }

  void Load() {
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

  void InitializeStage3() {
    int64_t n = out_.shard_elements;
    int64_t s = out_.sub_group_elements;
    int64_t t = out_.temporaries_per_element;
    int64_t flat = weights_on_gpu_ ? width_ * n : 0;
    int64_t on = states_on_gpu_ ? 1 : 0;
    int64_t bucket =
        set_.contiguous_gradients ? width_ * set_.reduce_bucket_size : 0;
    Phase phase = Phase::kInitialize;
    Add(phase, Tag::kFlatWeights, "16-bit weights, flat buffer", flat, true,
        absl::StrFormat("%dn", width_),
        "defragment (runtime/zero/stage3.py:471)");
    Add(phase, Tag::kMasterWeights, "fp32 master weights", on * 4 * n, true,
        "4n", "_create_fp32_partitions (runtime/zero/stage3.py:736)");
    AddSubGroup(phase, Tag::kGradientBuffer, "fp32 gradient buffer", on * 4,
                "initialize_optimizer_states (runtime/zero/stage3.py:897)");
    if (!states_late_) {
      AddStates(on * 8 * n, "_optimizer_step > torch/optim _init_group");
      AddSubGroup(phase, Tag::kOptimizerTemporaries, "optimizer temporaries", t,
                  "_optimizer_step > torch/optim _multi_tensor_adam(w)");
    }
    Add(phase, Tag::kGradients, "gradient bucket", bucket, true,
        absl::StrFormat("%d x reduce_bucket_size", width_),
        old_names_ ? "_setup_for_real_optimizer __ipg_bucket_flat_buffer "
                     "(runtime/zero/stage3.py:435)"
                   : "_setup_for_real_optimizer ipg_buckets");
    Add(phase, Tag::kGradients, "gradient partitions", on * set_.grad_bytes * n,
        true, absl::StrFormat("%dn", set_.grad_bytes),
        "_setup_for_real_optimizer grad_partitions_flat_buffer "
        "(runtime/zero/stage3.py:444)");
    int64_t head = TiedHead();
    if (head > 0) {
      Add(phase, Tag::kTiedHead,
          "partition of the output head before it was "
          "tied",
          head, true, absl::StrFormat("%d x head / partitions", width_),
          "left from loading");
    }
    int64_t gather = LiveGather();
    if (gather > 0) {
      Add(phase, Tag::kGatheredParameters,
          "gather of each parameter for its "
          "hooks",
          gather, false,
          absl::StrFormat("%d x %d x largest", std::min(GatherBuffers(), 2),
                          width_),
          "create_reduce_and_remove_grad_hooks (runtime/zero/stage3.py:1037)")
          .upper_bound = true;
    }
    int64_t early = states_late_ ? 0 : on * 8 * n;
    out_.initialize_steady =
        head + flat + on * 4 * n + early + bucket + on * set_.grad_bytes * n;
    out_.step_steady = out_.initialize_steady + on * 8 * n - early;
    out_.optimizer_build_peak =
        head + flat + on * (4 * n + 4 * s + (states_late_ ? 0 : FirstStep(t)));
    out_.initialize_peak =
        std::max(out_.optimizer_build_peak, out_.initialize_steady + gather);
  }

  void TrainStage3() {
    // Alone in its group a rank uses its partitions where they are.
    bool gathers = partitions_ > 1 || !weights_on_gpu_;
    int64_t live =
        gathers ? width_ * std::min(out_.params, set_.max_live_parameters +
                                                     set_.prefetch_bucket_size)
                : 0;
    ExpectedRow& gathered = Add(
        Phase::kForward, Tag::kGatheredParameters, "gathered parameters", live,
        false, absl::StrFormat("at most %d x (max_live + prefetch)", width_),
        "fetch_sub_module (runtime/zero/partitioned_param_coordinator.py)");
    gathered.upper_bound = true;
    int64_t reduce = width_ * set_.reduce_bucket_size;
    ExpectedRow& scatter =
        Add(Phase::kBackward, Tag::kGradients, "reduce-scatter of a bucket",
            reduce, false, absl::StrFormat("%d x reduce_bucket_size", width_),
            "__avg_scatter_grads (runtime/zero/stage3.py)");
    scatter.upper_bound = true;
    out_.training_peak = out_.step_steady + live + reduce;
    int64_t per_element = (states_on_gpu_ ? 4 : 0);
    AddSubGroup(Phase::kStep, Tag::kGradientBuffer,
                "fp32 gradients of a sub-group", per_element,
                "_prepare_fp32_grad_for_sub_group "
                "(runtime/zero/stage3.py:1664)");
    if (states_late_ && states_on_gpu_) {
      AddStates(8 * out_.shard_elements,
                "_optimizer_step > torch/optim _init_group; since 0.13.2 in "
                "the first step");
    }
    AddSubGroup(Phase::kStep, Tag::kOptimizerTemporaries,
                "optimizer temporaries", out_.temporaries_per_element,
                "_optimizer_step > torch/optim _multi_tensor_adam(w)");
    per_element += out_.temporaries_per_element;
    out_.step_peak = out_.step_steady + per_element * out_.sub_group_elements;
    if (out_.sub_group_at_least && per_element > 0) {
      out_.notes.push_back(
          "a sub-group ends with the parameter that reaches sub_group_size: S "
          "is that at least, and less than that plus the largest parameter; a "
          "model config gives it exactly");
    }
    out_.notes.push_back("activations are not modelled");
  }

  void InitializeBelow3() {
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

  void TrainBelow3() {
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
      AddStates(8 * n,
                "torch/optim _init_group; since 0.13.2 in the first step");
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

  void Communicators() {
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

  void Estimate() {
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

  const MemoryInputs& in_;
  const Settings& set_;
  ExpectedMemory out_;
  std::vector<int64_t> sub_groups_;  // of one rank, where sizes are known
  int64_t partitions_ = 1;
  int64_t width_ = 2;
  bool states_on_gpu_ = true;
  bool weights_on_gpu_ = true;
  bool states_late_ = true;  // Adam's states are made in the first step
  bool old_names_ = true;
};

}  // namespace

int64_t OptimizerTemporaries(OptimizerKind optimizer,
                             const Version& torch_version) {
  if (optimizer == OptimizerKind::kFusedAdam) return 0;
  // Until torch 2.0 the denominator was a second list beside the roots.
  return torch_version < Version{2, 1, 0} ? 8 : 4;
}

ExpectedMemory ExpectMemory(const MemoryInputs& inputs) {
  return Model(inputs).Run();
}

}  // namespace dstrace::deepspeed
