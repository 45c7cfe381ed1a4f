// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/expected_memory.h"

#include <gtest/gtest.h>

namespace dstrace::deepspeed {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr double kMib = 1024.0 * 1024;

MemoryInputs Stage3(int64_t params, int world_size) {
  MemoryInputs inputs;
  inputs.settings.version = {0, 10, 1};
  inputs.settings.states_at_first_step = false;
  inputs.settings.stage = 3;
  inputs.settings.world_size = world_size;
  inputs.params = params;
  inputs.torch_version = {2, 0, 1};
  return inputs;
}

MemoryInputs Bloom7b1(int world_size) {
  MemoryInputs inputs = Stage3(0, world_size);
  inputs.shape = *ReadModelConfig(
      R"({"model_type": "bloom", "hidden_size": 4096, "n_layer": 30,
          "vocab_size": 250880})");
  return inputs;
}

TEST(ExpectedMemory, OfThirtyThreeBillionOnSixteenMatchesTheTable) {
  MemoryInputs inputs = Stage3(32500000000, 16);

  ExpectedMemory now = ExpectMemory(inputs);
  EXPECT_NEAR(now.initialize_peak / kGib, 37.66, 0.005);
  EXPECT_NEAR(now.initialize_steady / kGib, 31.20, 0.005);
  inputs.settings.sub_group_size = 500000000;
  EXPECT_NEAR(ExpectMemory(inputs).initialize_peak / kGib, 32.07, 0.005);
  inputs.settings.sub_group_size = 100000000;
  ExpectedMemory small = ExpectMemory(inputs);
  EXPECT_NEAR(small.optimizer_build_peak / kGib, 27.60, 0.005);
  // What stays is higher than the peak while the optimizer is built.
  EXPECT_NEAR(small.initialize_peak / kGib, 31.20, 0.005);
  inputs.settings.sub_group_size = 1000000000;
  inputs.optimizer = OptimizerKind::kFusedAdam;
  ExpectedMemory fused = ExpectMemory(inputs);
  EXPECT_NEAR(fused.optimizer_build_peak / kGib, 30.21, 0.005);
}

TEST(ExpectedMemory, ThePartsOfThirtyThreeBillionAreTheTablesRows) {
  ExpectedMemory memory = ExpectMemory(Stage3(32500000000, 16));

  auto gib = [&](Tag tag) {
    int64_t bytes = 0;
    for (const ExpectedRow& row : memory.rows) {
      if (row.phase == Phase::kInitialize && row.tag == tag) {
        bytes += row.bytes;
      }
    }
    return bytes / kGib;
  };
  EXPECT_NEAR(gib(Tag::kFlatWeights), 3.78, 0.005);
  EXPECT_NEAR(gib(Tag::kMasterWeights), 7.57, 0.005);
  EXPECT_NEAR(gib(Tag::kAdamStates), 15.13, 0.005);
  EXPECT_NEAR(gib(Tag::kGradientBuffer), 3.73, 0.005);
  EXPECT_NEAR(gib(Tag::kOptimizerTemporaries), 7.45, 0.005);
  EXPECT_NEAR(memory.estimate.no_offload / kGib, 34.05, 0.01);
}

TEST(ExpectedMemory, OfBloomOnFourMatchesTheTable) {
  ExpectedMemory memory = ExpectMemory(Stage3(7069016064, 4));

  EXPECT_NEAR(memory.initialize_peak / kGib, 34.2, 0.05);
  EXPECT_NEAR(memory.initialize_steady / kGib, 27.3, 0.05);
  EXPECT_NEAR(memory.load_live / kGib, 3.29, 0.005);
}

TEST(ExpectedMemory, DeepSpeedsOwnEstimateForBloomOnFour) {
  ExpectedMemory memory = ExpectMemory(Bloom7b1(4));

  EXPECT_TRUE(memory.estimate.largest_layer_known);
  EXPECT_NEAR(memory.estimate.no_offload / kGib, 33.45, 0.01);
}

// Measured on two GPUs: 6 741 MiB of shards, 7 722 MiB alive after loading,
// 55 872 MiB alive after deepspeed.initialize.
TEST(ExpectedMemory, OfBloomOnTwoIsWithinOnePercentOfTheMeasuredRun) {
  MemoryInputs inputs = Bloom7b1(2);
  inputs.torch_version = {2, 11, 0};

  ExpectedMemory memory = ExpectMemory(inputs);

  EXPECT_NEAR(memory.rows[0].bytes / kMib, 6741, 2);
  EXPECT_NEAR(memory.load_live / kMib, 7722, 0.01 * 7722);
  EXPECT_NEAR(memory.initialize_steady / kMib, 55872, 0.01 * 55872);
  // The trace's own highest point, in create_reduce_and_remove_grad_hooks, and
  // the one while the optimizer is built.
  EXPECT_NEAR(memory.initialize_peak / kMib, 59787, 0.01 * 59787);
  EXPECT_NEAR(memory.optimizer_build_peak / kMib, 53966, 0.01 * 53966);
}

TEST(ExpectedMemory, LoadHoldsTwoCopiesOfAGatherThenOne) {
  auto gather = [](Version version) {
    MemoryInputs inputs = Bloom7b1(4);
    inputs.settings.version = version;
    ExpectedMemory memory = ExpectMemory(inputs);
    return (memory.load_peak - memory.load_live) / kGib;
  };
  EXPECT_NEAR(gather({0, 10, 1}), 2 * 1.914, 0.01);
  EXPECT_NEAR(gather({0, 12, 4}), 2 * 1.914, 0.01);
  EXPECT_NEAR(gather({0, 18, 5}), 1.914, 0.01);
}

TEST(ExpectedMemory, MicsShardsByItsGroupNotByTheWorld) {
  MemoryInputs inputs = Stage3(7000000000, 16);
  inputs.settings.mics_shard_size = 4;
  MemoryInputs four = Stage3(7000000000, 4);

  EXPECT_EQ(ExpectMemory(inputs).initialize_steady,
            ExpectMemory(four).initialize_steady);
  EXPECT_EQ(ExpectMemory(inputs).communicators, 3);
}

TEST(ExpectedMemory, MicsOverTheWholeWorldOpensOneCommunicatorMore) {
  MemoryInputs inputs = Stage3(7000000000, 4);
  EXPECT_EQ(ExpectMemory(inputs).communicators, 1);
  inputs.settings.mics_shard_size = 4;
  EXPECT_EQ(ExpectMemory(inputs).communicators, 2);
  inputs.settings.world_size = inputs.settings.mics_shard_size = 16;
  inputs.settings.mics_hierarchical = true;
  EXPECT_EQ(ExpectMemory(inputs).communicators, 4);
}

TEST(ExpectedMemory, OffloadLeavesTheGpu) {
  MemoryInputs inputs = Stage3(7000000000, 4);
  inputs.settings.offload_optimizer = Offload::kCpu;

  ExpectedMemory optimizer = ExpectMemory(inputs);
  inputs.settings.offload_param = Offload::kCpu;
  ExpectedMemory both = ExpectMemory(inputs);

  EXPECT_EQ(optimizer.initialize_steady,
            2 * optimizer.shard_elements + 1000000000);
  EXPECT_EQ(both.initialize_steady, 1000000000);
}

TEST(ExpectedMemory, NewerTorchHalvesTheTemporaries) {
  EXPECT_EQ(OptimizerTemporaries(OptimizerKind::kTorchAdam, {2, 0, 1}), 8);
  EXPECT_EQ(OptimizerTemporaries(OptimizerKind::kTorchAdam, {2, 1, 0}), 4);
  EXPECT_EQ(OptimizerTemporaries(OptimizerKind::kFusedAdam, {2, 0, 1}), 0);
}

TEST(ExpectedMemory, OneGpuWithAShardOfThirtyThreeBillion) {
  MemoryInputs inputs = Stage3(2030000000, 1);
  inputs.torch_version = {2, 11, 0};
  inputs.settings.reduce_bucket_size = 16777216;

  EXPECT_NEAR(ExpectMemory(inputs).initialize_peak / kGib, 33.9, 0.05);
  inputs.settings.sub_group_size = 100000000;
  ExpectedMemory small = ExpectMemory(inputs);
  EXPECT_NEAR(small.optimizer_build_peak / kGib, 27.2, 0.05);
  EXPECT_NEAR(small.initialize_steady / kGib, 30.3, 0.05);
}

TEST(ExpectedMemory, LowerStagesKeepTheWholeModel) {
  MemoryInputs inputs = Stage3(1000000000, 4);
  inputs.settings.stage = 2;
  ExpectedMemory two = ExpectMemory(inputs);
  inputs.settings.stage = 1;
  ExpectedMemory one = ExpectMemory(inputs);

  EXPECT_EQ(two.initialize_steady, 2000000000 + 12 * 250000000LL);
  EXPECT_EQ(one.initialize_steady, two.initialize_steady);
  EXPECT_GT(one.training_peak, two.training_peak);
}

}  // namespace
}  // namespace dstrace::deepspeed
