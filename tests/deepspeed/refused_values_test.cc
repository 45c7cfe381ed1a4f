// SPDX-License-Identifier: Apache-2.0
//
// Values that DeepSpeed's own config classes take and refuse. Each row was put
// to them: 0.10.1 with pydantic 1.10.24, 0.19.6 with pydantic 2.14.4; the rows
// of releases between are read from their runtime/precision_config.py.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "analyzer/deepspeed/config_check.h"
#include "tests/deepspeed/test_files.h"

namespace dstrace::deepspeed {
namespace {

constexpr Version kOld{0, 10, 1};
constexpr Version kNew{0, 19, 6};

struct Row {
  Version version;
  const char* section;
  const char* members;
  bool taken;
};

std::string ConfigOf(const Row& row) {
  std::string section = row.section;
  std::string object = absl::StrCat("{", row.members, "}");
  if (section == "offload_param" || section == "offload_optimizer") {
    object = absl::StrCat("{\"stage\": 3, \"", section,
                          "\": {\"device\": \"cpu\", ", row.members, "}}");
    section = "zero_optimization";
  }
  std::string precision =
      section == "fp16" ? "" : "\"bf16\": {\"enabled\": true}, ";
  return absl::StrCat("{\"train_micro_batch_size_per_gpu\": 1, ", precision,
                      "\"", section, "\": ", object, "}");
}

class Values : public testing::TestWithParam<Row> {};

TEST_P(Values, AreRefusedWhereDeepSpeedRefusesThem) {
  CheckOptions options;
  options.version = GetParam().version;
  options.world_size = 4;
  std::string config = ConfigOf(GetParam());

  ConfigReport report = CheckConfig(config, options);

  std::string said;
  for (const Finding& finding : report.findings) {
    if (finding.severity == Severity::kError) {
      absl::StrAppend(&said, finding.rule, ": ", finding.message, "\n");
    }
  }
  EXPECT_EQ(said.empty(), GetParam().taken)
      << FormatVersion(GetParam().version) << " " << config << "\n"
      << said;
}

#define DYNAMIC "\"enabled\": true, \"loss_scale\": 0, "
#define STATIC "\"enabled\": true, \"loss_scale\": 128, "
#define STAGE3 "\"stage\": 3, "

INSTANTIATE_TEST_SUITE_P(
    LossScale, Values,
    testing::Values(
        Row{kNew, "fp16", "\"enabled\": true, \"loss_scale\": true", false},
        Row{kNew, "fp16", "\"enabled\": true, \"loss_scale\": false", false},
        Row{kNew, "fp16", "\"enabled\": true, \"loss_scale\": -1", false},
        Row{kNew, "fp16", "\"enabled\": true, \"loss_scale\": \"-1\"", false},
        Row{kNew, "fp16", "\"enabled\": true, \"loss_scale\": \"inf\"", false},
        Row{kNew, "fp16", "\"enabled\": true, \"loss_scale\": \"x\"", false},
        Row{kNew, "fp16", "\"enabled\": true, \"loss_scale\": null", false},
        Row{kNew, "fp16", "\"enabled\": true, \"loss_scale\": 0", true},
        Row{kNew, "fp16", "\"enabled\": true, \"loss_scale\": 1.5", true},
        Row{kNew, "fp16", "\"enabled\": true, \"loss_scale\": \"1.5\"", true},
        Row{kNew, "fp16", "\"enabled\": true, \"loss_scale\": \"auto\"", true},
        Row{{0, 18, 8}, "fp16", "\"loss_scale\": true", false},
        Row{{0, 18, 7}, "fp16", "\"loss_scale\": true", true},
        Row{{0, 18, 7}, "fp16", "\"enabled\": true, \"loss_scale\": -1", true},
        Row{kOld, "fp16", "\"enabled\": true, \"loss_scale\": -1", true}));

INSTANTIATE_TEST_SUITE_P(
    DynamicScaling, Values,
    testing::Values(
        Row{kNew, "fp16", DYNAMIC "\"loss_scale_window\": 0", false},
        Row{kNew, "fp16", DYNAMIC "\"loss_scale_window\": -1", false},
        Row{kNew, "fp16", DYNAMIC "\"loss_scale_window\": true", false},
        Row{kNew, "fp16", DYNAMIC "\"loss_scale_window\": 1e30", false},
        Row{kNew, "fp16", DYNAMIC "\"loss_scale_window\": 500", true},
        Row{kNew, "fp16", STATIC "\"loss_scale_window\": 0", true},
        Row{kNew, "fp16", DYNAMIC "\"min_loss_scale\": 0", false},
        Row{kNew, "fp16", DYNAMIC "\"min_loss_scale\": false", false},
        Row{kNew, "fp16", STATIC "\"min_loss_scale\": 0", true},
        Row{{0, 19, 2}, "fp16", DYNAMIC "\"min_loss_scale\": 0", true},
        Row{{0, 19, 2}, "fp16", DYNAMIC "\"min_loss_scale\": true", true},
        Row{kNew, "fp16", DYNAMIC "\"hysteresis\": true", true},
        Row{kNew, "fp16", DYNAMIC "\"hysteresis\": 1.5", false}));

INSTANTIATE_TEST_SUITE_P(
    Sizes, Values,
    testing::Values(
        Row{kNew, "zero_optimization", STAGE3 "\"sub_group_size\": 0", true},
        Row{kOld, "zero_optimization", STAGE3 "\"sub_group_size\": 0", true},
        Row{kNew, "zero_optimization", STAGE3 "\"sub_group_size\": -1", false},
        Row{kNew, "zero_optimization", STAGE3 "\"sub_group_size\": 1e30",
            false},
        Row{kOld, "zero_optimization", STAGE3 "\"sub_group_size\": 1e30", true},
        Row{kNew, "zero_optimization", STAGE3 "\"sub_group_size\": \"-1\"",
            false},
        Row{kNew, "zero_optimization", STAGE3 "\"sub_group_size\": -0.5",
            false},
        Row{kOld, "zero_optimization", STAGE3 "\"sub_group_size\": -0.5", true},
        Row{kOld, "zero_optimization", STAGE3 "\"sub_group_size\": true", true},
        Row{kNew, "zero_optimization", STAGE3 "\"reduce_bucket_size\": 0",
            false},
        Row{{0, 19, 5},
            "zero_optimization",
            STAGE3 "\"reduce_bucket_size\": 0",
            true},
        Row{kNew, "zero_optimization", STAGE3 "\"reduce_bucket_size\": -1",
            false},
        Row{kNew, "zero_optimization",
            STAGE3 "\"stage3_max_live_parameters\": -1", false},
        Row{kNew, "zero_optimization",
            STAGE3 "\"stage3_prefetch_bucket_size\": []", false},
        Row{kNew, "zero_optimization", "\"stage\": 4", false},
        Row{kNew, "zero_optimization", "\"stage\": -1", false},
        Row{kNew, "zero_optimization", "\"stage\": 1.5", false},
        Row{kNew, "zero_optimization", "\"stage\": null", false}));

INSTANTIATE_TEST_SUITE_P(
    Offload, Values,
    testing::Values(
        Row{kNew, "offload_param", "\"buffer_count\": -1", false},
        Row{kOld, "offload_param", "\"buffer_count\": -1", false},
        Row{kOld, "offload_param", "\"buffer_count\": -0.5", true},
        Row{kNew, "offload_param", "\"buffer_size\": \"1e9\"", false},
        Row{kNew, "offload_param", "\"pin_memory\": 4", false},
        Row{kNew, "offload_param", "\"pin_memory\": \"true\"", true},
        Row{kNew, "offload_optimizer", "\"ratio\": 1.5", false},
        Row{kNew, "offload_optimizer", "\"ratio\": -0.5", false},
        Row{kNew, "offload_optimizer", "\"ratio\": true", true},
        Row{kNew, "offload_optimizer", "\"fast_init\": {}", false}));

TEST(NegativeLossScale, IsSaidToTurnTheSignBefore0188) {
  CheckOptions options;
  options.version = {0, 18, 7};
  ConfigReport report = CheckConfig(
      R"({"train_batch_size": 4, "fp16": {"enabled": true, "loss_scale": -2}})",
      options);

  const Finding* finding = FindRule(report.findings, "negative-loss-scale");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kWarning);
}

// precision_config.py _validate_dynamic_loss_scale_params sees the number that
// pydantic made of the text.
TEST(RefusedValues, ANegativeScaleInQuotesIsRefusedAsTheNumberIs) {
  CheckOptions options;
  options.world_size = 4;
  for (const char* value : {"-1", "\"-1\""}) {
    std::string json = std::string(R"({"train_batch_size": 4, "fp16":
        {"enabled": true, "min_loss_scale": )") +
                       value + "}}";
    options.version = {0, 19, 6};
    EXPECT_NE(
        FindRule(CheckConfig(json, options).findings, "min-loss-scale-zero"),
        nullptr)
        << value;
    options.version = {0, 19, 2};
    EXPECT_EQ(
        FindRule(CheckConfig(json, options).findings, "min-loss-scale-zero"),
        nullptr)
        << value;
  }
}

// pydantic 1 makes a shard size of 1 from 1.5, which divides every world;
// pydantic 2 refuses it.
TEST(RefusedValues, AFractionalShardSizeIsCutUntilPydantic2RefusesIt) {
  CheckOptions options;
  options.world_size = 4;
  const char json[] = R"({"train_batch_size": 4, "fp16": {"enabled": true},
      "zero_optimization": {"stage": 3, "mics_shard_size": 1.5}})";
  options.version = {0, 10, 1};
  ConfigReport cut = CheckConfig(json, options);
  EXPECT_EQ(CountFindings(cut.findings, Severity::kError), 0)
      << Describe(cut.findings);
  EXPECT_EQ(cut.settings.mics_shard_size, 1);
  options.version = {0, 19, 6};
  EXPECT_NE(FindRule(CheckConfig(json, options).findings, "wrong-type"),
            nullptr);
}

}  // namespace
}  // namespace dstrace::deepspeed
