// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/config_check.h"

#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "analyzer/deepspeed/checks.h"
#include "tests/deepspeed/test_files.h"

namespace dstrace::deepspeed {
namespace {

CheckOptions ReportOptions(int world_size) {
  CheckOptions options;
  options.version = {0, 10, 1};
  options.torch_version = {2, 0, 1};
  options.world_size = world_size;
  return options;
}

ConfigReport CheckZero(const std::string& members, CheckOptions options) {
  return CheckConfig(
      "{\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true}, "
      "\"zero_optimization\": {" +
          members + "}}",
      options);
}

TEST(Report, AsPrintedNamesTheLineAndTheMissingComma) {
  ConfigReport report =
      CheckConfig(ReadTestFile("report_as_printed.json"), ReportOptions(4));

  EXPECT_FALSE(report.valid_json);
  EXPECT_TRUE(report.readable);
  ASSERT_FALSE(report.findings.empty());
  const Finding* finding = FindRule(report.findings, "invalid-json");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->place.line, 33);
  EXPECT_EQ(finding->place.column, 9);
  EXPECT_NE(finding->message.find(
                "missing comma before \"stage3_param_persistence_threshold\""),
            std::string::npos);
  EXPECT_NE(finding->change.find("line 32"), std::string::npos);
}

TEST(Report, AsPrintedStillGetsTheOtherFindings) {
  ConfigReport printed =
      CheckConfig(ReadTestFile("report_as_printed.json"), ReportOptions(4));
  ConfigReport repaired =
      CheckConfig(ReadTestFile("report_repaired.json"), ReportOptions(4));

  EXPECT_EQ(printed.findings.size(), repaired.findings.size() + 1);
}

struct Row {
  const char* rule;
  const char* key;
  Severity severity;
  int line;
};

TEST(Report, RepairedListsEveryCheckableRowAndNoFalseOne) {
  const Row rows[] = {
      {"mics-shard-not-dividing", "zero_optimization.mics_shard_size",
       Severity::kError, 36},
      {"auto-default", "zero_optimization.sub_group_size", Severity::kWarning,
       31},
      {"auto-default", "zero_optimization.reduce_bucket_size",
       Severity::kWarning, 29},
      {"auto-is-true", "fp16.auto_cast", Severity::kWarning, 9},
      {"data-sampling-top-level", "data_sampling", Severity::kWarning, 51},
      {"batch-derived", "train_batch_size", Severity::kNote, 2},
      {"bfloat16-old-name", "bfloat16", Severity::kNote, 20},
      {"ignored-at-stage", "zero_optimization.allgather_partitions",
       Severity::kNote, 25},
      {"ignored-at-stage", "zero_optimization.allgather_bucket_size",
       Severity::kNote, 26},
      {"deprecated-key",
       "zero_optimization.stage3_gather_fp16_weights_on_model_save",
       Severity::kNote, 38},
      {"offload-optimizer-none", "zero_optimization.offload_optimizer.device",
       Severity::kNote, 40},
      {"offload-param-none", "zero_optimization.offload_param.device",
       Severity::kNote, 43},
      {"untested-optimizer-flag", "zero_allow_untested_optimizer",
       Severity::kNote, 46},
  };

  ConfigReport report =
      CheckConfig(ReadTestFile("report_repaired.json"), ReportOptions(4));

  EXPECT_TRUE(report.valid_json);
  for (const Row& row : rows) {
    const Finding* finding = FindRule(report.findings, row.rule, row.key);
    ASSERT_NE(finding, nullptr) << row.rule << " " << row.key;
    EXPECT_EQ(finding->severity, row.severity) << row.rule;
    EXPECT_EQ(finding->place.line, row.line) << row.rule;
    EXPECT_FALSE(finding->source.empty()) << row.rule;
  }
  EXPECT_EQ(report.findings.size(), std::size(rows))
      << Describe(report.findings);
}

TEST(Report, GivesTheAutoValuesInBytes) {
  CheckOptions options = ReportOptions(4);
  options.hidden_size = 4096;
  ConfigReport report =
      CheckConfig(ReadTestFile("report_repaired.json"), options);

  const Finding* group = FindRule(report.findings, "auto-default",
                                  "zero_optimization.sub_group_size");
  ASSERT_NE(group, nullptr);
  EXPECT_EQ(group->bytes, 12000000000);
  EXPECT_EQ(group->saving_bytes, 10800000000);
  EXPECT_EQ(group->change, "100000000");
  const Finding* bucket = FindRule(report.findings, "auto-default",
                                   "zero_optimization.reduce_bucket_size");
  ASSERT_NE(bucket, nullptr);
  EXPECT_EQ(bucket->bytes, 1000000000);
  EXPECT_EQ(bucket->saving_bytes, 2 * (500000000 - 16777216));
  EXPECT_NE(bucket->message.find("1.00 GB"), std::string::npos);
}

// What the reporter's script makes of the file: mics_shard_size = world size.
std::string WithMics(const std::string& size, const std::string& hierarchical) {
  return absl::StrReplaceAll(
      ReadTestFile("report_repaired.json"),
      {{"\"mics_shard_size\": 8", "\"mics_shard_size\": " + size},
       {"\"mics_hierarchical_params_gather\": false",
        "\"mics_hierarchical_params_gather\": " + hierarchical}});
}

TEST(Mics, EqualToTheWorldSizeIsNoBenefitButValid) {
  ConfigReport report = CheckConfig(WithMics("4", "false"), ReportOptions(4));

  EXPECT_NE(FindRule(report.findings, "mics-shard-equals-world"), nullptr);
  EXPECT_EQ(CountFindings(report.findings, Severity::kError), 0)
      << Describe(report.findings);
}

TEST(Mics, HierarchicalOnOneNodeFails) {
  ConfigReport one_node = CheckConfig(WithMics("4", "true"), ReportOptions(4));
  ConfigReport two_nodes =
      CheckConfig(WithMics("16", "true"), ReportOptions(16));

  EXPECT_NE(FindRule(one_node.findings, "mics-hierarchical-one-node"), nullptr);
  EXPECT_EQ(FindRule(two_nodes.findings, "mics-hierarchical-one-node"),
            nullptr);
}

TEST(Mics, BadShardSizesFailOnlyWithMicsInit) {
  CheckOptions plain = ReportOptions(4);
  CheckOptions mics = plain;
  mics.mics_init = true;

  EXPECT_NE(FindRule(CheckConfig(WithMics("-1", "false"), mics).findings,
                     "mics-init-shard-negative"),
            nullptr);
  EXPECT_NE(FindRule(CheckConfig(WithMics("0", "false"), mics).findings,
                     "mics-init-shard-zero"),
            nullptr);
  EXPECT_EQ(CountFindings(CheckConfig(WithMics("-1", "false"), plain).findings,
                          Severity::kError),
            0);
  EXPECT_NE(FindRule(CheckConfig(WithMics("1", "false"), plain).findings,
                     "mics-shard-one"),
            nullptr);
}

TEST(Mics, TheInternalSpellingIsRefusedWithTheValidOneBeside) {
  ConfigReport report =
      CheckZero("\"stage\": 3, \"mics_hierarchial_params_gather\": true", {});

  const Finding* finding = FindRule(report.findings, "unknown-key");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kError);
  EXPECT_EQ(finding->change, "\"mics_hierarchical_params_gather\"");
}

struct ZeroCase {
  const char* members;
  const char* rule;  // nullptr: no error
};

class ZeroErrors : public testing::TestWithParam<ZeroCase> {};

// Each was run against DeepSpeed's own classes of 0.10.1.
TEST_P(ZeroErrors, MatchWhatDeepSpeedRefuses) {
  CheckOptions options;
  options.version = {0, 10, 1};
  ConfigReport report = CheckZero(GetParam().members, options);

  int errors = CountFindings(report.findings, Severity::kError);
  if (GetParam().rule == nullptr) {
    EXPECT_EQ(errors, 0) << Describe(report.findings);
  } else {
    const Finding* finding = FindRule(report.findings, GetParam().rule);
    ASSERT_NE(finding, nullptr) << Describe(report.findings);
    EXPECT_EQ(finding->severity, Severity::kError);
    EXPECT_EQ(errors, 1) << Describe(report.findings);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ZeroErrors,
    testing::Values(
        ZeroCase{"\"stage\": 3, \"sub_group_size\": \"1e9\"", "wrong-type"},
        ZeroCase{"\"stage\": 3, \"sub_group_size\": \"1000000000\"", nullptr},
        ZeroCase{"\"stage\": 3, \"sub_group_size\": 3.5e7", nullptr},
        ZeroCase{"\"stage\": 3, \"sub_group_size\": null", "wrong-type"},
        ZeroCase{"\"stage\": 3, \"reduce_bucket_size\": -1", "wrong-type"},
        ZeroCase{"\"stage\": 4", "wrong-type"},
        ZeroCase{"\"stage\": \"3\"", "wrong-type"},
        ZeroCase{"\"stage\": \"auto\"", "stage-auto"},
        ZeroCase{"\"stage\": 3, \"offload_param\": null", nullptr},
        ZeroCase{"\"stage\": 3, \"offload_param\": {\"device\": null}",
                 "wrong-type"},
        ZeroCase{"\"stage\": 3, \"offload_param\": {\"device\": \"gpu\"}",
                 "wrong-type"},
        ZeroCase{"\"stage\": 3, \"offload_param\": \"cpu\"", "wrong-type"},
        ZeroCase{"\"stage\": 2, \"overlap_comm\": \"yes\"", nullptr},
        ZeroCase{"\"stage\": 2, \"overlap_comm\": 2", "wrong-type"},
        ZeroCase{"\"stage\": 3, \"stage3_max_live_params\": 1", "unknown-key"},
        ZeroCase{"\"stage\": 2, \"cpu_offload\": true, "
                 "\"offload_optimizer\": {\"device\": \"cpu\"}",
                 "deprecated-and-new"},
        ZeroCase{"\"stage\": 3, \"stage3_gather_fp16_weights_on_model_save\": "
                 "true, \"stage3_gather_16bit_weights_on_model_save\": true",
                 "deprecated-and-new"},
        ZeroCase{"\"stage\": 3, \"prefetch_bucket_size\": 5", nullptr},
        ZeroCase{"\"stage\": 3, \"prefetch_bucket_size\": 5, "
                 "\"stage3_prefetch_bucket_size\": 6",
                 "both-spellings"},
        ZeroCase{"\"stage\": 3, \"offload_param\": {\"device\": \"nvme\"}",
                 "offload-param-nvme-path"},
        ZeroCase{"\"stage\": 1, \"legacy_stage1\": true", "legacy-stage1"}));

TEST(Auto, HfTrainerFillsItsKeysAndNotSubGroupSize) {
  std::string text =
      "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": "
      "\"auto\", \"bf16\": {\"enabled\": \"auto\"}, \"zero_optimization\": "
      "{\"stage\": 3, \"reduce_bucket_size\": \"auto\", \"sub_group_size\": "
      "\"auto\"}}";
  CheckOptions options;

  ConfigReport told = CheckConfig(text, options);
  options.launcher = Launcher::kPlain;
  ConfigReport plain = CheckConfig(text, options);

  EXPECT_EQ(told.launcher, Launcher::kHfTrainer);
  EXPECT_EQ(FindRule(told.findings, "auto-default",
                     "zero_optimization.reduce_bucket_size"),
            nullptr);
  EXPECT_NE(FindRule(told.findings, "auto-default",
                     "zero_optimization.sub_group_size"),
            nullptr);
  EXPECT_EQ(CountFindings(told.findings, Severity::kError), 0);
  EXPECT_NE(FindRule(plain.findings, "auto-not-a-number", "train_batch_size"),
            nullptr);
  EXPECT_NE(FindRule(plain.findings, "auto-default",
                     "zero_optimization.reduce_bucket_size"),
            nullptr);
}

TEST(Auto, HfTrainersValuesAreCountedFromTheHiddenSize) {
  CheckOptions options;
  options.hidden_size = 4096;

  ConfigReport report =
      CheckConfig(ReadTestFile("zero3_hf_auto.json"), options);

  EXPECT_EQ(report.settings.reduce_bucket_size, 16777216);
  EXPECT_EQ(report.settings.prefetch_bucket_size, 15099494);
  EXPECT_EQ(report.settings.param_persistence_threshold, 40960);
  ASSERT_FALSE(report.sizes.empty());
  EXPECT_EQ(report.sizes[0].origin, "\"auto\": HF Trainer, hidden_size^2");
}

TEST(Batch, TheThreeSizesMustAgreeWithTheWorld) {
  auto check = [](const char* members, int world_size) {
    CheckOptions options;
    options.world_size = world_size;
    return CheckConfig(std::string("{") + members + "}", options);
  };
  const char* all =
      "\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4, "
      "\"gradient_accumulation_steps\": 4";

  EXPECT_EQ(FindRule(check(all, 4).findings, "batch-mismatch"), nullptr);
  const Finding* mismatch = nullptr;
  ConfigReport eight = check(all, 8);
  mismatch = FindRule(eight.findings, "batch-mismatch");
  ASSERT_NE(mismatch, nullptr);
  EXPECT_NE(mismatch->message.find("128"), std::string::npos);
  EXPECT_NE(
      FindRule(check("\"train_batch_size\": 10", 4).findings, "batch-mismatch"),
      nullptr);
  EXPECT_NE(FindRule(check("\"train_batch_size\": 0", 4).findings,
                     "batch-not-positive"),
            nullptr);
}

TEST(Keys, MisplacedMisspeltAndUnknownTopLevelKeysAreNoErrors) {
  ConfigReport report = CheckConfig(
      "{\"train_micro_batch_size_per_gpu\": 1, \"overlap_comm\": true, "
      "\"gradient_cliping\": 1.0, \"my_own_setting\": 3, \"_comment\": \"x\"}",
      {});

  const Finding* misplaced = FindRule(report.findings, "misplaced-key");
  ASSERT_NE(misplaced, nullptr);
  EXPECT_EQ(misplaced->place.key, "overlap_comm");
  const Finding* misspelt = FindRule(report.findings, "misspelt-key");
  ASSERT_NE(misspelt, nullptr);
  EXPECT_EQ(misspelt->change, "\"gradient_clipping\"");
  EXPECT_NE(FindRule(report.findings, "ignored-key", "my_own_setting"),
            nullptr);
  EXPECT_EQ(FindRule(report.findings, "ignored-key", "_comment"), nullptr);
  EXPECT_EQ(CountFindings(report.findings, Severity::kError), 0);
}

TEST(Sizes, CountBytesOfTheTrainingPrecision) {
  CheckOptions options;
  ConfigReport half =
      CheckZero("\"stage\": 3, \"stage3_prefetch_bucket_size\": 5e8", options);

  ASSERT_FALSE(half.sizes.empty());
  auto row = std::find_if(half.sizes.begin(), half.sizes.end(),
                          [](const SizeRow& one) {
                            return one.key == "stage3_prefetch_bucket_size";
                          });
  ASSERT_NE(row, half.sizes.end());
  EXPECT_EQ(row->bytes, 1000000000);
  EXPECT_EQ(row->origin, "set");
}

TEST(Versions, OlderReleaseRefusesALaterKeyAndSaysSinceWhen) {
  const char* members =
      "\"stage\": 3, \"stage3_use_all_reduce_for_fetch_params\": true";
  CheckOptions options;
  options.version = {0, 14, 2};
  ConfigReport old_report = CheckZero(members, options);
  options.version = {0, 14, 3};
  ConfigReport new_report = CheckZero(members, options);

  const Finding* finding =
      FindRule(old_report.findings, "key-of-later-release");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kError);
  EXPECT_NE(finding->message.find("0.14.3"), std::string::npos);
  EXPECT_EQ(CountFindings(new_report.findings, Severity::kError), 0)
      << Describe(new_report.findings);
}

TEST(Versions, Fp16SectionIsStrictFromPoint17Point1) {
  const char* text =
      "{\"train_batch_size\": 8, \"fp16\": {\"enabled\": true, "
      "\"loss_scale_windw\": 100}}";
  CheckOptions options;
  options.version = {0, 17, 0};
  ConfigReport lenient = CheckConfig(text, options);
  options.version = {0, 17, 1};
  ConfigReport strict = CheckConfig(text, options);

  EXPECT_NE(FindRule(lenient.findings, "misspelt-key"), nullptr);
  EXPECT_EQ(CountFindings(lenient.findings, Severity::kError), 0);
  EXPECT_NE(FindRule(strict.findings, "unknown-key"), nullptr);
}

TEST(Versions, PlainAutoPrecisionMeansOnThenOff) {
  const char* text =
      "{\"train_batch_size\": 8, \"bf16\": {\"enabled\": \"auto\"}}";
  CheckOptions options;
  options.launcher = Launcher::kPlain;
  options.version = {0, 10, 1};
  ConfigReport before = CheckConfig(text, options);
  options.version = {0, 18, 0};
  ConfigReport after = CheckConfig(text, options);

  EXPECT_NE(FindRule(before.findings, "auto-is-true", "bf16.enabled"), nullptr);
  const Finding* dropped =
      FindRule(after.findings, "auto-default", "bf16.enabled");
  ASSERT_NE(dropped, nullptr);
  EXPECT_NE(dropped->message.find("false"), std::string::npos);
}

TEST(Versions, PydanticTwoRefusesFractionsAndTakesStageAsText) {
  CheckOptions options;
  options.version = {0, 15, 0};

  EXPECT_NE(
      FindRule(
          CheckZero("\"stage\": 3, \"sub_group_size\": 0.5", options).findings,
          "wrong-type"),
      nullptr);
  EXPECT_EQ(CountFindings(CheckZero("\"stage\": \"3\"", options).findings,
                          Severity::kError),
            0);
}

TEST(Versions, MicsAndZeroPlusPlusExcludeEachOtherUntilPoint10Point1) {
  const char* members =
      "\"stage\": 3, \"mics_shard_size\": 8, \"zero_hpz_partition_size\": 8";
  CheckOptions options;
  options.world_size = 16;
  options.version = {0, 10, 1};
  ConfigReport old_report = CheckZero(members, options);
  options.version = {0, 12, 0};
  ConfigReport new_report = CheckZero(members, options);

  EXPECT_NE(FindRule(old_report.findings, "mics-with-hpz"), nullptr);
  EXPECT_EQ(FindRule(new_report.findings, "mics-with-hpz"), nullptr);
}

TEST(Combinations, AreOnlyErrorsWhereDeepSpeedFails) {
  CheckOptions options;
  options.world_size = 8;
  auto rule = [&](const char* text, const char* name) {
    return FindRule(CheckConfig(text, options).findings, name) != nullptr;
  };

  EXPECT_TRUE(
      rule("{\"train_batch_size\": 8, \"amp\": {\"enabled\": true}, "
           "\"zero_optimization\": {\"stage\": 1}}",
           "amp-with-zero"));
  EXPECT_FALSE(
      rule("{\"train_batch_size\": 8, \"amp\": {\"enabled\": false}, "
           "\"zero_optimization\": {\"stage\": 1}}",
           "amp-with-zero"));
  EXPECT_TRUE(
      rule("{\"train_batch_size\": 8, \"fp16\": {\"enabled\": true}, "
           "\"bf16\": {\"enabled\": true}}",
           "fp16-and-bf16"));
  EXPECT_TRUE(
      rule("{\"train_batch_size\": 8, \"optimizer\": {\"type\": "
           "\"OneBitAdam\"}, \"zero_optimization\": {\"stage\": 2}}",
           "onebit-with-zero"));
  EXPECT_TRUE(
      rule("{\"train_batch_size\": 8, \"prescale_gradients\": true, "
           "\"zero_optimization\": {\"stage\": 3}}",
           "prescale-stage3"));
  EXPECT_TRUE(
      rule("{\"train_batch_size\": 8, \"zero_optimization\": "
           "{\"stage\": 3, \"zero_hpz_partition_size\": 3}}",
           "hpz-not-dividing"));
  EXPECT_TRUE(
      rule("{\"train_batch_size\": 8, \"zero_optimization\": "
           "{\"stage\": 3, \"zero_quantized_gradients\": true}}",
           "qgz-one-node"));
}

}  // namespace
}  // namespace dstrace::deepspeed
