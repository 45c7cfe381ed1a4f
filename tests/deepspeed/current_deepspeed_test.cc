// SPDX-License-Identifier: Apache-2.0
//
// ZeRO-3 of DeepSpeed 0.19, plain and with offload: the configs that
// examples/deepspeed_current/train.py writes, 939 954 176 parameters on one
// GPU. Formulas: runtime/zero/stage3.py (0.19.6), named at each.
#include <gtest/gtest.h>

#include "analyzer/deepspeed/config_check.h"
#include "analyzer/deepspeed/expected_memory.h"
#include "analyzer/deepspeed/verdict.h"

namespace dstrace::deepspeed {
namespace {

constexpr int64_t kParams = 939954176;
constexpr int64_t kBucket = 2048 * 2048;
constexpr int64_t kGroup = 100000000;

std::string ConfigOf(const std::string& offload) {
  return R"({"train_batch_size": 2, "train_micro_batch_size_per_gpu": 2,
 "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
 "bf16": {"enabled": true}, "zero_force_ds_cpu_optimizer": false,
 "zero_optimization": {"stage": 3, "overlap_comm": true,
  "contiguous_gradients": true, "sub_group_size": 100000000,
  "reduce_bucket_size": 4194304, "stage3_prefetch_bucket_size": 3774873,
  "stage3_param_persistence_threshold": 20480)" +
         offload + "}}";
}

const char kOptimizer[] =
    R"(, "offload_optimizer": {"device": "cpu", "pin_memory": true})";
const char kParam[] =
    R"(, "offload_param": {"device": "cpu", "pin_memory": true})";

ConfigReport Check(const std::string& offload, Version version = {0, 19, 6}) {
  CheckOptions options;
  options.version = version;
  options.torch_version = {2, 11, 0};
  options.world_size = 1;
  return CheckConfig(ConfigOf(offload), options);
}

ExpectedMemory Expect(const std::string& offload,
                      Version version = {0, 19, 6}) {
  MemoryInputs inputs;
  inputs.settings = Check(offload, version).settings;
  inputs.params = kParams;
  return ExpectMemory(inputs);
}

int64_t BytesOf(const ExpectedMemory& memory, Tag tag, Where where,
                Phase phase = Phase::kInitialize) {
  int64_t bytes = 0;
  for (const ExpectedRow& row : memory.rows) {
    if (row.phase == phase && row.tag == tag && row.where == where) {
      bytes += row.bytes;
    }
  }
  return bytes;
}

TEST(CurrentDeepSpeed, HasNothingToSayAgainstTheExamplesConfigs) {
  for (const std::string& offload : {std::string(), std::string(kOptimizer),
                                     std::string(kOptimizer) + kParam}) {
    for (const Finding& finding : Check(offload).findings) {
      // One GPU shards nothing: said of the plain row, and right.
      if (offload.empty() && finding.rule == "stage3-one-gpu") continue;
      EXPECT_EQ(finding.severity, Severity::kNote)
          << offload << " " << finding.message;
    }
  }
}

// lp_param_buffer 2n, _create_fp32_partitions 4n, states 8n, ipg_buckets
// 2 x reduce_bucket_size, grad_partitions_flat_buffer 2n; bf16's gradients are
// bf16 unless grad_accum_dtype says otherwise (engine.py get_data_types).
TEST(CurrentDeepSpeed, PlainKeepsSixteenBytesAParameterOnTheGpu) {
  ExpectedMemory memory = Expect("");

  EXPECT_EQ(memory.load_live, 2 * kParams);
  EXPECT_EQ(memory.initialize_steady, 8 * kParams + 2 * kBucket);
  EXPECT_EQ(memory.optimizer_build_peak, 6 * kParams + 4 * kGroup);
  EXPECT_EQ(memory.step_steady, 16 * kParams + 2 * kBucket);
  EXPECT_EQ(memory.step_peak, memory.step_steady + 8 * kGroup);
  EXPECT_EQ(memory.training_peak, memory.step_steady + 2 * kBucket);
  EXPECT_EQ(memory.pinned_steady, 0);
  EXPECT_EQ(memory.host_steady, 0);
}

// initialize_optimizer_states called the optimizer's step until 0.13.1 (#5104).
TEST(CurrentDeepSpeed, MakesAdamStatesInTheFirstStepSince0132) {
  ExpectedMemory before = Expect("", {0, 13, 1});
  EXPECT_EQ(BytesOf(before, Tag::kAdamStates, Where::kDevice), 8 * kParams);
  EXPECT_EQ(before.initialize_steady, 16 * kParams + 2 * kBucket);
  EXPECT_EQ(before.step_steady, before.initialize_steady);

  ExpectedMemory since = Expect("", {0, 13, 2});
  EXPECT_EQ(BytesOf(since, Tag::kAdamStates, Where::kDevice), 0);
  EXPECT_EQ(BytesOf(since, Tag::kAdamStates, Where::kDevice, Phase::kStep),
            8 * kParams);
  EXPECT_EQ(since.step_steady, before.step_steady);
}

// Stage 0 takes its step in fp16/fused_optimizer.py still.
TEST(CurrentDeepSpeed, WithoutZeroTheStatesAreMadeInInitialize) {
  CheckOptions options;
  options.world_size = 1;
  auto late = [&](const char* zero) {
    return CheckConfig(zero, options).settings.states_at_first_step;
  };
  EXPECT_FALSE(late(R"({"zero_optimization": {"stage": 0}})"));
  EXPECT_TRUE(late(R"({"zero_optimization": {"stage": 1}})"));
  EXPECT_TRUE(late(R"({"zero_optimization": {"stage": 2}})"));
  // A trace that shows otherwise is right.
  options.states_at_first_step = false;
  EXPECT_FALSE(late(R"({"zero_optimization": {"stage": 3}})"));
}

// _create_fp16_sub_groups closes a sub-group with the parameter that reaches
// sub_group_size.
TEST(CurrentDeepSpeed, ASubGroupIsKnownExactlyOnlyWithTheParametersSizes) {
  ExpectedMemory unknown = Expect("");
  EXPECT_TRUE(unknown.sub_group_at_least);
  for (const ExpectedRow& row : unknown.rows) {
    bool sub_group = row.tag == Tag::kGradientBuffer ||
                     row.tag == Tag::kOptimizerTemporaries;
    EXPECT_EQ(row.lower_bound, sub_group) << row.name;
  }

  MemoryInputs inputs;
  inputs.settings = Check("").settings;
  inputs.shape = *ReadModelConfig(
      R"({"model_type": "gpt_neox", "hidden_size": 2048,
          "intermediate_size": 8192, "num_hidden_layers": 16,
          "vocab_size": 32768, "tie_word_embeddings": false})");
  ExpectedMemory known = ExpectMemory(inputs);
  EXPECT_EQ(known.params, kParams);
  EXPECT_FALSE(known.sub_group_at_least);
  EXPECT_GT(known.sub_group_elements, kGroup);
  EXPECT_LT(known.sub_group_elements, kGroup + 32768 * 2048);
  EXPECT_EQ(known.step_peak, known.step_steady + 8 * known.sub_group_elements);

  // One sub-group of all parameters is exact without them.
  inputs.shape = {};
  inputs.params = kParams;
  inputs.settings.sub_group_size = 2 * kParams;
  EXPECT_FALSE(ExpectMemory(inputs).sub_group_at_least);
}

// self.device is the host: fp32 partitions, states, gradients; the flat 16-bit
// weights and the bucket stay.
TEST(CurrentDeepSpeed, OptimizerOffloadLeavesWeightsAndBucket) {
  ExpectedMemory memory = Expect(kOptimizer);

  EXPECT_EQ(memory.load_live, 2 * kParams);
  EXPECT_EQ(memory.initialize_steady, 2 * kParams + 2 * kBucket);
  EXPECT_EQ(memory.step_peak, memory.initialize_steady);
  EXPECT_EQ(BytesOf(memory, Tag::kMasterWeights, Where::kHost), 4 * kParams);
  EXPECT_EQ(BytesOf(memory, Tag::kAdamStates, Where::kHost, Phase::kStep),
            8 * kParams);
  // subgroup_gradient_buffer 4n and grad_partitions_flat_buffer 2n.
  EXPECT_EQ(memory.pinned_steady, 6 * kParams);
  EXPECT_EQ(memory.host_steady, 12 * kParams);
  EXPECT_EQ(memory.pinned_load, 0);
}

// _create_param_groups_fp16_flat_cpu_memory, and _partition_param while
// loading, where remote_device is the host.
TEST(CurrentDeepSpeed, ParameterOffloadLeavesTheBucket) {
  ExpectedMemory memory = Expect(std::string(kOptimizer) + kParam);

  EXPECT_EQ(memory.load_live, 0);
  EXPECT_EQ(memory.initialize_steady, 2 * kBucket);
  EXPECT_EQ(memory.pinned_load, 2 * kParams);
  EXPECT_EQ(memory.pinned_steady, 8 * kParams);
  EXPECT_EQ(BytesOf(memory, Tag::kFlatWeights, Where::kPinnedHost),
            2 * kParams);
}

// A rank alone gathers nothing it has on the GPU (NoGatherHandle), but brings
// parameters from the host.
TEST(CurrentDeepSpeed, OneRankGathersOnlyWhatIsOnTheHost) {
  auto gathered = [](const ExpectedMemory& memory) {
    for (const ExpectedRow& row : memory.rows) {
      if (row.phase == Phase::kForward) return row.bytes;
    }
    return int64_t{-1};
  };
  EXPECT_EQ(gathered(Expect("")), 0);
  EXPECT_EQ(gathered(Expect(kOptimizer)), 0);
  EXPECT_GT(gathered(Expect(std::string(kOptimizer) + kParam)), 0);
}

// runtime/zero/offload_config.py: pin_memory was false until 0.19.4.
TEST(CurrentDeepSpeed, PinsUnaskedSince0195) {
  const char unsaid[] = R"(, "offload_optimizer": {"device": "cpu"})";
  EXPECT_EQ(Expect(unsaid, {0, 19, 4}).pinned_steady, 0);
  EXPECT_EQ(Expect(unsaid, {0, 19, 4}).host_steady, 18 * kParams);
  EXPECT_EQ(Expect(unsaid, {0, 19, 5}).pinned_steady, 6 * kParams);
  // The flat 16-bit weights are pinned in every release.
  const char param[] = R"(, "offload_param": {"device": "cpu"})";
  EXPECT_EQ(Expect(param, {0, 10, 1}).pinned_steady, 2 * kParams);
  EXPECT_EQ(Expect(param, {0, 10, 1}).pinned_load, 0);
}

const ComparedRow* RowNamed(const Verdict& verdict, Phase phase,
                            const std::string& name) {
  for (const ComparedRow& row : verdict.rows) {
    if (row.phase == phase && row.name == name) return &row;
  }
  return nullptr;
}

TEST(CurrentDeepSpeed, SetsPinnedMemoryOfTheTraceAgainstTheExpected) {
  ConfigReport config = Check(kOptimizer);
  MemoryInputs inputs;
  inputs.settings = config.settings;
  inputs.params = kParams;
  ExpectedMemory expected = ExpectMemory(inputs);
  Measured measured;
  MeasuredPhase initialize;
  initialize.phase = Phase::kInitialize;
  initialize.live = expected.initialize_steady;
  initialize.host_pinned = 8 * kParams;
  measured.phases.push_back(initialize);
  measured.rows.push_back(
      {Phase::kInitialize,
       RowKind::kPinned,
       std::nullopt,
       8 * kParams,
       {"pin_memory (deepspeed/accelerator/cuda_accelerator.py:1)",
        "initialize_optimizer_states (deepspeed/runtime/zero/stage3.py:1)"}});

  Verdict verdict = Judge(config, inputs, expected, measured);

  const ComparedRow* row =
      RowNamed(verdict, Phase::kInitialize, "pinned host memory, at least");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->expected, 6 * kParams);
  EXPECT_EQ(row->measured, 8 * kParams);
  ASSERT_EQ(row->evidence.size(), 1u);
  EXPECT_NE(row->evidence[0].find("initialize_optimizer_states"),
            std::string::npos);
  // The host's rows are not asked of the GPU.
  EXPECT_EQ(RowNamed(verdict, Phase::kInitialize, "Adam states"), nullptr);
  EXPECT_EQ(RowNamed(verdict, Phase::kInitialize, "fp32 master weights"),
            nullptr);
}

}  // namespace
}  // namespace dstrace::deepspeed
