// SPDX-License-Identifier: Apache-2.0
//
// Stage 3: weights, gradients and states in partitions, the optimizer's step a
// sub-group at a time.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "analyzer/deepspeed/expected_model.h"

namespace dstrace::deepspeed {

void ExpectedModel::InitializeStage3() {
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
  Add(phase, Tag::kMasterWeights, "fp32 master weights", on * 4 * n, true, "4n",
      "_create_fp32_partitions (runtime/zero/stage3.py:736)");
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

void ExpectedModel::TrainStage3() {
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
  AddSubGroup(Phase::kStep, Tag::kOptimizerTemporaries, "optimizer temporaries",
              out_.temporaries_per_element,
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

}  // namespace dstrace::deepspeed
