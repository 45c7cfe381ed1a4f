// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/verdict.h"

#include <gtest/gtest.h>

#include "tests/deepspeed/test_files.h"

namespace dstrace::deepspeed {
namespace {

constexpr int64_t kMib = 1 << 20;
constexpr int64_t kGib = 1 << 30;

const std::vector<std::string> kRegather = {
    "_allgather_params (partition_parameters.py:1621)",
    "_all_gather",
    "all_gather",
    "wrapped_fn_to_apply (partition_parameters.py:379)",
    "apply",
    "_load_pretrained_model",
    "from_pretrained"};
const std::vector<std::string> kEmbedding = {
    "_allgather_params (partition_parameters.py:1621)",
    "_all_gather",
    "all_gather",
    "GatheredParameters.__enter__",
    "_load_state_dict_into_model",
    "from_pretrained"};
const std::vector<std::string> kConstruct = {
    "__init__ (torch/nn/modules/linear.py:96)", "wrapper", "from_pretrained"};
const std::vector<std::string> kShard = {
    "_partition_param (partition_parameters.py:1381)", "_zero_init_param",
    "from_pretrained"};

// A run of the BLOOM-7b1 shape on two GPUs.
struct Case {
  Case() {
    options.version = {0, 10, 1};
    options.world_size = 2;
    config = CheckConfig(
        "{\"train_batch_size\": 64, \"gradient_accumulation_steps\": 4, "
        "\"fp16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3}}",
        options);
    inputs.settings = config.settings;
    inputs.torch_version = {2, 0, 1};
    inputs.shape = *ReadModelConfig(
        R"({"model_type": "bloom", "hidden_size": 4096, "n_layer": 30,
            "vocab_size": 250880})");
  }

  void Add(Phase phase, RowKind kind, int64_t bytes,
           const std::vector<std::string>& stack) {
    measured.rows.push_back({phase, kind, std::nullopt, bytes, stack});
  }

  void EndOfLoad(int64_t live, int64_t reserved, int64_t used) {
    MeasuredPhase phase;
    phase.phase = Phase::kLoad;
    phase.live = live;
    phase.reserved = reserved;
    phase.device_used = used;
    measured.phases.push_back(phase);
  }

  Verdict Run() const {
    return Judge(config, inputs, ExpectMemory(inputs), measured);
  }

  CheckOptions options;
  ConfigReport config;
  MemoryInputs inputs;
  Measured measured;
};

TEST(Verdict, NamesTheModuleApplyRegatherAsTheFirstCauseWhereItDominates) {
  Case run;
  run.EndOfLoad(7722 * kMib, 32062 * kMib, 34011 * kMib);
  run.Add(Phase::kLoad, RowKind::kCached, 17000 * kMib, kRegather);
  run.Add(Phase::kLoad, RowKind::kCached, 4500 * kMib, kConstruct);
  run.Add(Phase::kLoad, RowKind::kCached, 2800 * kMib, kEmbedding);
  run.Add(Phase::kLoad, RowKind::kLive, 6741 * kMib, kShard);

  Verdict verdict = run.Run();

  ASSERT_FALSE(verdict.findings.empty());
  const Finding& first = verdict.findings[0];
  EXPECT_EQ(first.rule, "module-apply-regather");
  EXPECT_EQ(first.saving_bytes, 17000 * kMib);
  ASSERT_FALSE(first.evidence.empty());
  EXPECT_NE(first.evidence[0].find("wrapped_fn_to_apply"), std::string::npos);
  EXPECT_NE(first.change.find("\"override_module_apply\": false"),
            std::string::npos);
  EXPECT_EQ(verdict.validity, Validity::kValidBut);
  EXPECT_EQ(verdict.headline.rfind("valid, but", 0), 0u) << verdict.headline;
  EXPECT_NE(FindRule(verdict.findings, "construction-cache"), nullptr);
}

TEST(Verdict, DoesNotBlameTheRegatherWhereSomethingElseDominates) {
  Case run;
  run.EndOfLoad(7722 * kMib, 13850 * kMib, 15799 * kMib);
  run.Add(Phase::kLoad, RowKind::kCached, 5500 * kMib, kEmbedding);
  run.Add(Phase::kLoad, RowKind::kCached, 600 * kMib, kRegather);

  Verdict verdict = run.Run();

  EXPECT_EQ(FindRule(verdict.findings, "module-apply-regather"), nullptr);
  ASSERT_FALSE(verdict.findings.empty());
  EXPECT_EQ(verdict.findings[0].rule, "checkpoint-gather-cache");
}

TEST(Verdict, SaysNothingAboutTheCacheAfterEmptyCache) {
  Case run;
  run.EndOfLoad(7722 * kMib, 7826 * kMib, 9775 * kMib);
  run.Add(Phase::kLoad, RowKind::kCached, 104 * kMib, kRegather);

  EXPECT_EQ(run.Run().validity, Validity::kValid) << run.Run().headline;
}

TEST(Verdict, ReportsACacheWithoutStacksByItsTwoNumbers) {
  Case run;
  run.EndOfLoad(7722 * kMib, 32062 * kMib, 34011 * kMib);

  Verdict verdict = run.Run();

  const Finding* finding = FindRule(verdict.findings, "allocator-cache");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->bytes, 24340 * kMib);
  EXPECT_FALSE(finding->evidence.empty());
}

TEST(Verdict, FindsNothingInATraceThatMeasuredNothing) {
  Case run;

  Verdict verdict = run.Run();

  EXPECT_EQ(CountFindings(verdict.findings, Severity::kWarning), 0)
      << Describe(verdict.findings);
  EXPECT_EQ(verdict.validity, Validity::kValid);
}

TEST(Verdict, SeesAModelThatWasNotSharded) {
  Case run;
  run.EndOfLoad(13482 * kMib, 14000 * kMib, 15000 * kMib);
  run.Add(Phase::kLoad, RowKind::kLive, 13482 * kMib, kShard);

  Verdict verdict = run.Run();

  EXPECT_EQ(verdict.validity, Validity::kNotValid);
  EXPECT_EQ(verdict.findings[0].rule, "not-sharded");
}

TEST(Verdict, ListsTheStacksOfTensorsAliveAboveTheShards) {
  Case run;
  run.EndOfLoad(13866 * kMib, 17826 * kMib, 19289 * kMib);
  run.Add(Phase::kLoad, RowKind::kLive, 6741 * kMib, kShard);
  run.Add(Phase::kLoad, RowKind::kLive, 6144 * kMib, kConstruct);

  Verdict verdict = run.Run();

  const Finding* finding = FindRule(verdict.findings, "live-above-expected");
  ASSERT_NE(finding, nullptr) << Describe(verdict.findings);
  ASSERT_EQ(finding->evidence.size(), 2u);
  EXPECT_NE(finding->evidence[1].find("6.00 GiB"), std::string::npos);
}

MeasuredOom AdamOom() {
  MeasuredOom oom;
  oom.request = 4000000000;
  oom.limit = 32 * kGib;
  oom.live = 30 * kGib;
  oom.stack = {"_multi_tensor_adam (torch/optim/adam.py:600)",
               "step",
               "_optimizer_step",
               "initialize_optimizer_states (stage3.py:892)",
               "_setup_for_real_optimizer",
               "_configure_zero_optimizer",
               "initialize"};
  return oom;
}

TEST(Oom, NamesAdamsTemporariesTheRequestAndTheSubGroupSize) {
  Case run;
  run.inputs.shape = ModelShape();
  run.inputs.params = 32500000000;
  run.inputs.settings.world_size = 16;
  run.measured.oom = AdamOom();

  Verdict verdict = run.Run();

  const Finding& first = verdict.findings[0];
  EXPECT_EQ(first.rule, "oom-optimizer-temporaries");
  EXPECT_EQ(verdict.validity, Validity::kNotValid);
  EXPECT_NE(first.message.find("initialize_optimizer_states"),
            std::string::npos);
  EXPECT_NE(first.message.find("3.73 GiB = 1000000000 fp32 values"),
            std::string::npos)
      << first.message;
  EXPECT_NE(first.message.find("37.66 GiB"), std::string::npos);
  EXPECT_NE(first.change.find("\"sub_group_size\": 100000000"),
            std::string::npos);
  EXPECT_GT(first.saving_bytes, 6 * kGib);
  EXPECT_NE(first.evidence[0].find("_multi_tensor_adam"), std::string::npos);
}

TEST(Oom, DoesNotOfferASubGroupSizeThatIsAlreadySmall) {
  Case run;
  run.inputs.settings.sub_group_size = 100000000;
  run.measured.oom = AdamOom();

  Verdict verdict = run.Run();

  EXPECT_EQ(verdict.findings[0].change.find("\"sub_group_size\""),
            std::string::npos)
      << verdict.findings[0].change;
}

TEST(Oom, ElsewhereIsReportedByItsPhase) {
  Case run;
  MeasuredOom oom;
  oom.request = kGib;
  oom.stack = {"forward (modeling_bloom.py:400)"};
  run.measured.oom = oom;

  Verdict verdict = run.Run();

  EXPECT_EQ(verdict.findings[0].rule, "oom");
  EXPECT_NE(verdict.findings[0].message.find("forward"), std::string::npos);
}

TEST(Comparison, PutsEveryPartBesideItsMeasuredBytes) {
  Case run;
  run.EndOfLoad(7722 * kMib, 7826 * kMib, 9775 * kMib);
  run.Add(Phase::kLoad, RowKind::kLive, 6741 * kMib, kShard);
  MeasuredPhase initialize;
  initialize.phase = Phase::kInitialize;
  initialize.live = 55872 * kMib;
  run.measured.phases.push_back(initialize);

  Verdict verdict = run.Run();

  auto find = [&](const char* name) -> const ComparedRow* {
    for (const ComparedRow& row : verdict.rows) {
      if (row.name == name) return &row;
    }
    return nullptr;
  };
  const ComparedRow* shards = find("sharded weights");
  ASSERT_NE(shards, nullptr);
  EXPECT_NEAR(static_cast<double>(*shards->measured) / *shards->expected, 1,
              0.01);
  EXPECT_TRUE(shards->evidence.empty());
  const ComparedRow* end = find("all tensors, end of initialize");
  ASSERT_NE(end, nullptr);
  EXPECT_NEAR(static_cast<double>(*end->measured) / *end->expected, 1, 0.01);
}

TEST(Comparison, ShowsTheStackBehindADifferenceAboveFivePercent) {
  Case run;
  run.Add(Phase::kLoad, RowKind::kLive, 8000 * kMib, kShard);

  for (const ComparedRow& row : run.Run().rows) {
    if (row.name != "sharded weights") continue;
    ASSERT_EQ(row.evidence.size(), 1u);
    EXPECT_NE(row.evidence[0].find("_partition_param"), std::string::npos);
  }
}

TEST(Nccl, ACommunicatorForTheWholeWorldIsOneTooMany) {
  Case run;
  run.inputs.settings.mics_shard_size = 2;
  run.measured.nccl_bytes = 1376 * kMib;
  run.measured.communicators = 2;

  Verdict verdict = run.Run();

  const Finding* finding = FindRule(verdict.findings, "nccl-memory");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kWarning);
  EXPECT_EQ(finding->saving_bytes, 688 * kMib);
}

}  // namespace
}  // namespace dstrace::deepspeed
