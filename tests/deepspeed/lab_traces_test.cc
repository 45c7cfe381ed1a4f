// SPDX-License-Identifier: Apache-2.0
//
// The tool's answer on real traces of the reported case: BLOOM-7b1's shape on
// two H200, one trace for each suspected cause (docs/case-studies/
// zero3-mics.md says how they were made).
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "analyzer/cli/deepspeed_report.h"
#include "analyzer/cli/report.h"
#include "nlohmann/json.hpp"
#include "tests/deepspeed/test_files.h"

namespace dstrace::cli {
namespace {

using deepspeed::ComparedRow;
using deepspeed::Finding;
using deepspeed::MeasuredPhase;
using deepspeed::Phase;

constexpr int64_t kMib = 1 << 20;
constexpr char kRoot[] = DSTRACE_SOURCE_ROOT;

struct LabRow {
  const char* trace;
  const char* config;
  const char* model = "bloom_7b1.json";
};

std::string Path(const std::string& name) {
  return std::string(kRoot) + "/" + name;
}

DeepspeedOptions OptionsOf(const LabRow& row) {
  DeepspeedOptions options;
  options.config = Path(std::string("tests/deepspeed/traces/") + row.config);
  options.model_config = Path(std::string("examples/zero3_mics/") + row.model);
  options.check.version = {0, 10, 1};
  return options;
}

DeepspeedResult Compare(const LabRow& row) {
  auto result = CompareTrace(Path(row.trace), OptionsOf(row), std::nullopt);
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

const LabRow kOuter{"samples/zero3_mics_load.pb", "mics.json"};
const LabRow kInitialize{"samples/zero3_mics_initialize.pb", "mics.json"};
const LabRow kNoOuter{"tests/deepspeed/traces/no_outer.pb", "plain.json"};
const LabRow kNoModuleApply{"tests/deepspeed/traces/no_module_apply.pb",
                            "no_module_apply.json"};
const LabRow kLaunchBlocking{"tests/deepspeed/traces/launch_blocking.pb",
                             "mics.json"};
const LabRow kNative{"tests/deepspeed/traces/native.pb", "mics.json"};
const LabRow kNativePlain{"tests/deepspeed/traces/native_plain.pb",
                          "plain.json"};

// One rank's share of 33B on 16 GPUs, on one GPU capped at 32 GiB.
const LabRow kOom{"samples/zero3_oom.pb", "one_gpu_auto.json",
                  "bloom_2b03.json"};
const LabRow kOomFixed{"samples/zero3_oom_fixed.pb", "one_gpu_1e8.json",
                       "bloom_2b03.json"};

// DeepSpeed 0.19.6 with the optimizer on the host, on one GPU; no release is
// named.
DeepspeedResult CompareCurrent() {
  DeepspeedOptions options;
  options.config = Path("samples/zero3_current_offload.json");
  options.model_config = Path("examples/deepspeed_current/model.json");
  auto result = CompareTrace(Path("samples/zero3_current_offload.pb"), options,
                             std::nullopt);
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

const ComparedRow* Row(const DeepspeedResult& result, Phase phase,
                       const std::string& name) {
  for (const ComparedRow& row : result.verdict.rows) {
    if (row.phase == phase && row.name == name) return &row;
  }
  return nullptr;
}

void ExpectWithinOnePercent(const DeepspeedResult& result, Phase phase,
                            const std::string& name) {
  const ComparedRow* row = Row(result, phase, name);
  ASSERT_NE(row, nullptr) << name;
  ASSERT_TRUE(row->expected && row->measured) << name;
  EXPECT_GT(*row->expected, 0) << name;
  EXPECT_LE(std::llabs(*row->measured - *row->expected) * 100, *row->expected)
      << name << ": expected " << *row->expected << ", measured "
      << *row->measured;
}

TEST(LabTraces, NamesTheOuterContextsRegatherFirstWhereItIsTheCause) {
  for (const LabRow& row : {kOuter, kInitialize}) {
    DeepspeedResult result = Compare(row);

    ASSERT_FALSE(result.verdict.findings.empty()) << row.trace;
    const Finding& first = result.verdict.findings[0];
    EXPECT_EQ(first.rule, "module-apply-regather")
        << row.trace << "\n"
        << deepspeed::Describe(result.verdict.findings);
    EXPECT_GT(first.bytes.value_or(0), 10000 * kMib) << row.trace;
    ASSERT_FALSE(first.evidence.empty());
    EXPECT_NE(first.evidence[0].find("_allgather_params"), std::string::npos)
        << first.evidence[0];
    EXPECT_NE(first.change.find("override_module_apply"), std::string::npos);
  }
}

TEST(LabTraces, DoesNotBlameTheRegatherWhereItIsNotTheCause) {
  for (const LabRow& row :
       {kNoOuter, kNoModuleApply, kLaunchBlocking, kNative, kNativePlain}) {
    DeepspeedResult result = Compare(row);

    ASSERT_FALSE(result.verdict.findings.empty()) << row.trace;
    EXPECT_NE(result.verdict.findings[0].rule, "module-apply-regather")
        << row.trace;
  }
}

TEST(LabTraces, ModelStatesAfterLoadAgreeWithinOnePercent) {
  for (const LabRow& row : {kOuter, kInitialize, kNoOuter, kNoModuleApply,
                            kLaunchBlocking, kNative, kNativePlain}) {
    SCOPED_TRACE(row.trace);
    DeepspeedResult result = Compare(row);
    ExpectWithinOnePercent(result, Phase::kLoad, "sharded weights");
    ExpectWithinOnePercent(result, Phase::kLoad, "detached output head");
  }
}

TEST(LabTraces, ModelStatesAfterInitializeAgreeWithinOnePercent) {
  DeepspeedResult result = Compare(kInitialize);

  for (const char* name :
       {"16-bit weights, flat buffer", "fp32 master weights", "Adam states",
        "gradient bucket and partitions", "detached output head",
        "all tensors, end of initialize", "all tensors, peak"}) {
    ExpectWithinOnePercent(result, Phase::kInitialize, name);
  }
}

// Of torch.cuda.memory_allocated() and memory_reserved() at "end of load" in
// the same runs.
TEST(LabTraces, MeasuresWhatTorchItselfSaidAtTheEndOfLoad) {
  struct Said {
    LabRow row;
    double live, reserved, used;  // MiB
  };
  for (const Said& said : {Said{kOuter, 7721.5, 36958, 38906.9},
                           Said{kInitialize, 7721.5, 32206, 34154.9},
                           Said{kNoOuter, 7721.5, 17476, 18938.9},
                           Said{kNoModuleApply, 7721.5, 14986, 16934.9},
                           Said{kLaunchBlocking, 7721.5, 11858, 13806.9},
                           Said{kNative, 12617.7, 18210, 20158.9},
                           Said{kNativePlain, 8873.6, 16722, 18184.9}}) {
    SCOPED_TRACE(said.row.trace);
    DeepspeedResult result = Compare(said.row);
    const MeasuredPhase* load = result.measure.measured.Find(Phase::kLoad);
    ASSERT_NE(load, nullptr);
    EXPECT_NEAR(static_cast<double>(load->live.value_or(0)) / kMib, said.live,
                0.1);
    EXPECT_NEAR(static_cast<double>(load->reserved.value_or(0)) / kMib,
                said.reserved, 0.1);
    EXPECT_NEAR(static_cast<double>(load->device_used.value_or(0)) / kMib,
                said.used, 0.1);
  }
}

TEST(LabTraces, ExplainsTheTensorsThatUnwaitedGathersKeepAlive) {
  for (const LabRow& row : {kNative, kNativePlain}) {
    DeepspeedResult result = Compare(row);

    const Finding* finding =
        deepspeed::FindRule(result.verdict.findings, "unwaited-gathers");
    ASSERT_NE(finding, nullptr)
        << row.trace << deepspeed::Describe(result.verdict.findings);
    EXPECT_GT(finding->bytes.value_or(0), 1000 * kMib);
  }
  EXPECT_EQ(
      deepspeed::FindRule(Compare(kOuter).verdict.findings, "unwaited-gathers"),
      nullptr);
}

TEST(OomTraces, NamesTheAdamTemporariesTheRequestAndTheChange) {
  DeepspeedResult result = Compare(kOom);

  ASSERT_FALSE(result.verdict.findings.empty());
  const Finding& first = result.verdict.findings[0];
  EXPECT_NE(first.message.find("initialize_optimizer_states"),
            std::string::npos)
      << first.message;
  EXPECT_NE(first.message.find("3.75 GiB"), std::string::npos);
  EXPECT_NE(first.change.find("\"sub_group_size\": 100000000"),
            std::string::npos)
      << first.change;
  ASSERT_FALSE(first.evidence.empty());
  EXPECT_NE(first.evidence[0].find("_multi_tensor_adam"), std::string::npos);
}

TEST(OomTraces, TheRunWithTheChangePeaksWithinThreePercentOfTheFormula) {
  DeepspeedResult result = Compare(kOomFixed);

  const ComparedRow* peak =
      Row(result, Phase::kInitialize, "all tensors, peak");
  ASSERT_NE(peak, nullptr);
  ASSERT_TRUE(peak->expected && peak->measured);
  EXPECT_LE(std::llabs(*peak->measured - *peak->expected) * 100,
            *peak->expected * 3);
}

TEST(CurrentTraces, StatesOfTheOffloadedRunAgreeWithinOnePercent) {
  DeepspeedResult result = CompareCurrent();

  ExpectWithinOnePercent(result, Phase::kLoad, "sharded weights");
  for (const char* name :
       {"16-bit weights, flat buffer", "gradient bucket and partitions",
        "gathered parameters (transient), at most", "all tensors, peak",
        "all tensors, end of initialize"}) {
    ExpectWithinOnePercent(result, Phase::kInitialize, name);
  }
  // Adam's states are on the host, in either phase.
  for (Phase phase : {Phase::kInitialize, Phase::kStep}) {
    EXPECT_EQ(Row(result, phase, "Adam states"), nullptr);
  }
}

// torch.cuda.memory_allocated() in the same run at "end_of_load",
// "initialized" and "step_1", the last step that another forward follows.
TEST(CurrentTraces, MeasuresWhatTorchItselfSaid) {
  const deepspeed::Measured measured = CompareCurrent().measure.measured;

  EXPECT_EQ(measured.Find(Phase::kLoad)->live, 1879908352);
  EXPECT_EQ(measured.Find(Phase::kInitialize)->live, 1888297472);
  EXPECT_EQ(measured.Find(Phase::kStep)->end_live, 1955415040);
}

TEST(CurrentTraces, TheBucketsTransientPartLeavesOutTheStandingOne) {
  DeepspeedResult result = CompareCurrent();

  const ComparedRow* row =
      Row(result, Phase::kBackward,
          "gradient bucket and partitions (transient), at most");
  ASSERT_NE(row, nullptr);
  ASSERT_TRUE(row->expected && row->measured);
  EXPECT_LE(*row->measured, *row->expected);
}

TEST(LabTraces, JsonAndTextOpenWithTheSameVerdict) {
  Options options;
  options.files = {Path(kOuter.trace)};
  options.deepspeed = OptionsOf(kOuter);
  const auto text = Render(options);
  options.format = Format::kJson;
  const auto json = Render(options);

  ASSERT_TRUE(text.ok() && json.ok());
  const auto parsed = nlohmann::json::parse(*json);
  EXPECT_EQ(text->substr(0, text->find('\n')),
            parsed["headline"].get<std::string>());
  EXPECT_EQ(parsed["world_size"], 2);
  EXPECT_EQ(parsed["findings"][0]["rule"], "module-apply-regather");
  EXPECT_FALSE(parsed["comparison"].empty());
}

TEST(LabTraces, NamesTheTraceThatCannotBeRead) {
  const auto result =
      CompareTrace("/nonexistent.pb", OptionsOf(kOuter), std::nullopt);

  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("/nonexistent.pb"),
            std::string::npos);
}

}  // namespace
}  // namespace dstrace::cli
