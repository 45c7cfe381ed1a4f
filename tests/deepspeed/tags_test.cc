// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/tags.h"

#include <gtest/gtest.h>

namespace dstrace::deepspeed {
namespace {

struct Stack {
  std::vector<std::string> frames;
  Tag tag;
  Phase phase;
};

class Stacks : public testing::TestWithParam<Stack> {};

TEST_P(Stacks, AreToldByTheirFunctions) {
  EXPECT_STREQ(TagName(ClassifyStack(GetParam().frames)),
               TagName(GetParam().tag));
  EXPECT_STREQ(PhaseName(PhaseOfStack(GetParam().frames)),
               PhaseName(GetParam().phase));
}

INSTANTIATE_TEST_SUITE_P(
    All, Stacks,
    testing::Values(
        Stack{{"_partition_param (partition_parameters.py:1381)", "partition",
               "_zero_init_param", "_post_init_method", "wrapper",
               "from_pretrained (modeling_utils.py:2700)"},
              Tag::kShardedWeights,
              Phase::kLoad},
        Stack{{"_allgather_params (partition_parameters.py:1621)",
               "_all_gather", "all_gather", "wrapped_fn_to_apply",
               "apply (module.py:897)", "_load_pretrained_model"},
              Tag::kModuleApplyGather,
              Phase::kLoad},
        Stack{{"all_gather (torch/distributed/distributed_c10d.py:2448)",
               "_allgather_params", "wrapped_fn_to_apply", "from_pretrained"},
              Tag::kModuleApplyGather,
              Phase::kLoad},
        Stack{{"_allgather_params_coalesced", "_all_gather",
               "GatheredParameters.__enter__", "load",
               "_load_state_dict_into_model"},
              Tag::kCheckpointGather,
              Phase::kLoad},
        Stack{{"__init__ (torch/nn/modules/linear.py:96)", "wrapper",
               "__init__ (modeling_bloom.py:220)", "from_pretrained"},
              Tag::kConstruction,
              Phase::kLoad},
        Stack{{"defragment (stage3.py:499)",
               "_create_fp16_partitions_with_defragmentation",
               "_configure_zero_optimizer", "initialize"},
              Tag::kFlatWeights,
              Phase::kInitialize},
        Stack{{"_create_fp32_partitions", "_setup_for_real_optimizer",
               "_configure_zero_optimizer"},
              Tag::kMasterWeights,
              Phase::kInitialize},
        Stack{{"initialize_optimizer_states (stage3.py:897)",
               "_setup_for_real_optimizer", "_configure_zero_optimizer"},
              Tag::kGradientBuffer,
              Phase::kInitialize},
        Stack{{"zeros_like", "_init_group (torch/optim/adamw.py:120)", "step",
               "_optimizer_step", "initialize_optimizer_states",
               "_configure_zero_optimizer"},
              Tag::kAdamStates,
              Phase::kInitialize},
        Stack{{"_multi_tensor_adamw (torch/optim/adamw.py:500)", "adamw",
               "step", "_optimizer_step", "initialize_optimizer_states",
               "_configure_zero_optimizer"},
              Tag::kOptimizerTemporaries,
              Phase::kInitialize},
        Stack{{"_multi_tensor_adam", "step (torch/optim/adam.py:120)",
               "_optimizer_step", "step", "_take_model_step"},
              Tag::kOptimizerTemporaries,
              Phase::kStep},
        Stack{{"_setup_for_real_optimizer (stage3.py:444)", "__init__",
               "_configure_zero_optimizer"},
              Tag::kGradients,
              Phase::kInitialize},
        Stack{{"_flat_all_gather_with_coalescing_manager", "fetch_sub_module",
               "forward"},
              Tag::kGatheredParameters,
              Phase::kForward},
        Stack{{"ncclCommInitRankConfig (libnccl.so.2)", "broadcast",
               "_zero_init_param"},
              Tag::kNccl,
              Phase::kLoad},
        Stack{{"main"}, Tag::kOther, Phase::kUnknown}));

TEST(Frames, MatchWholeNames) {
  EXPECT_TRUE(HasFunction({"Foo._partition_param"}, "_partition_param"));
  EXPECT_FALSE(HasFunction({"_partition_params_all"}, "_partition_param"));
  EXPECT_FALSE(HasFunction({"my_partition_param"}, "_partition_param"));
}

}  // namespace
}  // namespace dstrace::deepspeed
