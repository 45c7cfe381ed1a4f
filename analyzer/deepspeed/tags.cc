// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/tags.h"

#include <algorithm>
#include <array>

namespace dstrace::deepspeed {
namespace {

struct TagText {
  Tag tag;
  const char* id;
  const char* name;
};

constexpr TagText kTagTexts[] = {
    {Tag::kShardedWeights, "sharded_weights", "sharded weights"},
    {Tag::kModuleApplyGather, "module_apply_gather",
     "re-gather by the patched Module.apply"},
    {Tag::kCheckpointGather, "checkpoint_gather",
     "gather while the checkpoint loads"},
    {Tag::kConstruction, "construction", "full-size tensors at construction"},
    {Tag::kFlatWeights, "flat_weights", "16-bit weights, flat buffer"},
    {Tag::kMasterWeights, "master_weights", "fp32 master weights"},
    {Tag::kGradientBuffer, "gradient_buffer", "fp32 gradient buffer"},
    {Tag::kAdamStates, "adam_states", "Adam states"},
    {Tag::kOptimizerTemporaries, "optimizer_temporaries",
     "optimizer temporaries"},
    {Tag::kGradients, "gradients", "gradient bucket and partitions"},
    {Tag::kGatheredParameters, "gathered_parameters", "gathered parameters"},
    {Tag::kActivations, "activations", "activations"},
    {Tag::kNccl, "nccl", "NCCL communicators"},
    {Tag::kContext, "context", "CUDA context and modules"},
    {Tag::kTiedHead, "tied_head", "detached output head"},
    {Tag::kOther, "other", "other"},
};

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_';
}

bool FrameHas(const std::string& frame, std::string_view name) {
  for (size_t at = frame.find(name); at != std::string::npos;
       at = frame.find(name, at + 1)) {
    size_t end = at + name.size();
    bool starts = at == 0 || !IsNameByte(frame[at - 1]);
    bool ends = end >= frame.size() || !IsNameByte(frame[end]);
    if (starts && ends) return true;
  }
  return false;
}

bool HasAny(const std::vector<std::string>& frames,
            std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    return HasFunction(frames, name);
  });
}

bool Contains(const std::vector<std::string>& frames, std::string_view text) {
  return std::any_of(frames.begin(), frames.end(), [&](const auto& frame) {
    return frame.find(text) != std::string::npos;
  });
}

Tag ClassifyOptimizerStep(const std::vector<std::string>& frames) {
  if (HasAny(frames, {"_init_group", "zeros_like", "lazy_init_state"})) {
    return Tag::kAdamStates;
  }
  if (HasAny(frames, {"_multi_tensor_adamw", "_multi_tensor_adam",
                      "_single_tensor_adamw", "_single_tensor_adam",
                      "_fused_adamw", "_fused_adam"})) {
    return Tag::kOptimizerTemporaries;
  }
  return Tag::kOther;
}

Tag ClassifyInitialize(const std::vector<std::string>& frames) {
  if (HasAny(frames, {"initialize_optimizer_states",
                      "_prepare_fp32_grad_for_sub_group"})) {
    return Tag::kGradientBuffer;
  }
  if (HasAny(frames,
             {"defragment", "_create_param_groups_fp16_flat_cpu_memory"})) {
    return Tag::kFlatWeights;
  }
  if (HasAny(frames, {"_create_fp32_partitions", "_create_fp32_sub_groups"})) {
    return Tag::kMasterWeights;
  }
  if (HasFunction(frames, "_setup_for_real_optimizer")) {
    return Tag::kGradients;
  }
  return Tag::kOther;
}

Tag ClassifyLoad(const std::vector<std::string>& frames) {
  bool gathers = HasAny(
      frames, {"_allgather_params", "_allgather_params_coalesced",
               "_allgather_params_sequential", "_all_gather", "all_gather"});
  if (HasAny(frames, {"wrapped_fn_to_apply", "apply_with_gather"}) &&
      (gathers || HasFunction(frames, "broadcast"))) {
    return Tag::kModuleApplyGather;
  }
  if (HasAny(frames, {"_partition_param", "_partition_param_sec"})) {
    return Tag::kShardedWeights;
  }
  if (gathers && HasFunction(frames, "GatheredParameters")) {
    return Tag::kCheckpointGather;
  }
  if (gathers && HasFunction(frames, "__enter__")) {
    return Tag::kCheckpointGather;
  }
  if (HasAny(frames,
             {"_zero_init_param", "partition_after", "_post_init_method"}) ||
      (HasFunction(frames, "wrapper") &&
       Contains(frames, "partition_parameters.py")) ||
      Contains(frames, "nn/modules/linear.py") ||
      Contains(frames, "nn/modules/sparse.py") ||
      Contains(frames, "nn/modules/normalization.py")) {
    return Tag::kConstruction;
  }
  return Tag::kOther;
}

}  // namespace

const char* TagName(Tag tag) {
  for (const TagText& text : kTagTexts) {
    if (text.tag == tag) return text.name;
  }
  return "other";
}

const char* TagId(Tag tag) {
  for (const TagText& text : kTagTexts) {
    if (text.tag == tag) return text.id;
  }
  return "other";
}

const char* PhaseName(Phase phase) {
  constexpr std::array kNames = {"load",     "initialize", "forward",
                                 "backward", "step",       "unknown"};
  return kNames[static_cast<size_t>(phase)];
}

bool HasFunction(const std::vector<std::string>& frames,
                 std::string_view name) {
  return std::any_of(
      frames.begin(), frames.end(),
      [name](const std::string& frame) { return FrameHas(frame, name); });
}

Tag ClassifyStack(const std::vector<std::string>& frames) {
  if (Contains(frames, "libnccl") || Contains(frames, "ncclComm")) {
    return Tag::kNccl;
  }
  if (HasFunction(frames, "_optimizer_step") ||
      Contains(frames, "torch/optim/")) {
    Tag tag = ClassifyOptimizerStep(frames);
    if (tag != Tag::kOther) return tag;
  }
  if (HasAny(frames, {"fetch_sub_module", "__all_gather_params",
                      "_flat_all_gather_with_coalescing_manager",
                      "_hierarchical_all_gather_params", "all_gather_coalesced",
                      "create_reduce_and_remove_grad_hooks"})) {
    return Tag::kGatheredParameters;
  }
  Tag tag = ClassifyInitialize(frames);
  if (tag != Tag::kOther) return tag;
  if (HasAny(frames, {"__avg_scatter_grads", "reduce_scatter_coalesced",
                      "partition_grads", "average_tensor"})) {
    return Tag::kGradients;
  }
  return ClassifyLoad(frames);
}

Phase PhaseOfStack(const std::vector<std::string>& frames) {
  if (HasAny(frames, {"_configure_zero_optimizer", "_configure_optimizer",
                      "initialize_optimizer_states"})) {
    return Phase::kInitialize;
  }
  if (HasAny(frames, {"from_pretrained", "_load_pretrained_model",
                      "_load_state_dict_into_model", "partition_after",
                      "_zero_init_param", "wrapped_fn_to_apply"})) {
    return Phase::kLoad;
  }
  if (HasAny(frames, {"_take_model_step", "_optimizer_step"})) {
    return Phase::kStep;
  }
  if (HasAny(frames, {"backward", "run_backward", "_engine_run_backward"}) ||
      Contains(frames, "torch::autograd::Engine::")) {
    return Phase::kBackward;
  }
  if (HasFunction(frames, "forward")) return Phase::kForward;
  return Phase::kUnknown;
}

}  // namespace dstrace::deepspeed
