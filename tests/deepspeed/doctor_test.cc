// SPDX-License-Identifier: Apache-2.0
#include "analyzer/cli/doctor.h"

#include <gtest/gtest.h>

#include "analyzer/deepspeed/render.h"
#include "nlohmann/json.hpp"
#include "tests/deepspeed/test_files.h"

namespace dstrace::cli {
namespace {

std::string DataPath(const char* name) {
  return std::string(DSTRACE_DEEPSPEED_TEST_DATA) + "/" + name;
}

struct Outcome {
  int status = 0;
  std::string output;
  std::string error;
};

Outcome Doctor(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "doctor");
  std::vector<char*> argv;
  for (std::string& one : arguments) argv.push_back(one.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.status = DoctorMain(static_cast<int>(argv.size()), argv.data());
  outcome.output = testing::internal::GetCapturedStdout();
  outcome.error = testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(Doctor, ItsFirstLineIsTheVerdict) {
  Outcome outcome = Doctor({DataPath("report_as_printed.json"), "--world-size",
                            "4", "--deepspeed-version", "0.10.1"});

  EXPECT_EQ(outcome.status, 1);
  std::string first = outcome.output.substr(0, outcome.output.find('\n'));
  EXPECT_EQ(first,
            "not valid: line 33: invalid JSON: missing comma before "
            "\"stage3_param_persistence_threshold\" (and 1 more error)");
}

TEST(Doctor, JsonHasTheSameFindings) {
  Outcome outcome =
      Doctor({DataPath("report_repaired.json"), "--world-size=16",
              "--deepspeed-version=0.10.1", "--torch-version=2.0.1",
              "--params=32.5e9", "--json"});

  EXPECT_EQ(outcome.status, 0);
  nlohmann::json json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json["verdict"], "valid, but");
  EXPECT_EQ(json["zero_stage"], 3);
  EXPECT_EQ(json["expected"]["sub_group_elements"], 1000000000);
  bool found = false;
  for (const auto& finding : json["findings"]) {
    found = found || finding["key"] == "zero_optimization.sub_group_size";
  }
  EXPECT_TRUE(found);
}

TEST(Doctor, AGoodConfigIsValid) {
  Outcome outcome = Doctor({DataPath("mics_two_nodes.json"), "--world-size",
                            "16", "--launcher", "plain"});

  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output.rfind("valid\n", 0), 0u) << outcome.output;
}

TEST(Doctor, SaysWhatItCannotDo) {
  EXPECT_EQ(Doctor({}).status, 2);
  EXPECT_EQ(Doctor({"/nonexistent.json"}).status, 2);
  EXPECT_EQ(Doctor({"x.json", "--world-size", "-4"}).status, 2);
  EXPECT_EQ(Doctor({"x.json", "--launcher", "magic"}).status, 2);
  Outcome unknown = Doctor({"x.json", "--colour", "red"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.error.find("unknown option --colour"), std::string::npos);
  EXPECT_EQ(Doctor({"--help"}).status, 0);
}

TEST(Render, SurvivesBytesThatAreNoText) {
  using namespace deepspeed;
  CheckOptions options;
  ConfigReport report =
      CheckConfig("{\"train_batch_size\": 1, \"\xFF\xFE\": 3}", options);
  Verdict verdict = JudgeConfig(report);
  RenderInputs inputs{"x.json", options, report, verdict, nullptr};

  EXPECT_TRUE(nlohmann::json::accept(RenderJson(inputs)));
}

}  // namespace
}  // namespace dstrace::cli
