// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/report/golden.h"
#include "tests/report/sample_runs.h"

namespace dstrace::report {
namespace {

std::string Report(const model::Run& run, const JsonOptions& options = {}) {
  View view(run, attribution::RuleSet::BuiltIn());
  return Json(view, options);
}

TEST(Json, HasTheDocumentedShape) {
  model::Run run = testing::RegatherRun();
  run.devices[0].timeline.resize(4);
  testing::ExpectGolden("regather.json", Report(run));
  testing::ExpectGolden("oom_stacks.json", [] {
    model::Run oom = testing::OutOfMemoryRun();
    oom.devices[0].timeline.clear();
    JsonOptions options;
    options.stacks = true;
    options.top = 2;
    return Report(oom, options);
  }());
}

TEST(Json, IsValidForBrokenNames) {
  model::Run run = testing::NoTorchRun();
  run.process.host = "a\xff\xfe\"b";
  const auto parsed = nlohmann::json::parse(Report(run), nullptr, false);
  ASSERT_FALSE(parsed.is_discarded());
  EXPECT_EQ(parsed["schema"], "dstrace.report/1");
  EXPECT_EQ(parsed["trace"]["lost"][0]["count"], 12);
}

TEST(Json, SaysWhatALimitCost) {
  model::Run run = testing::EmptyRun();
  run.log_limit_bytes = 256 << 20;
  run.history_start_ns = 77;
  run.tracer_bytes = 4096;
  const auto trace = nlohmann::json::parse(Report(run))["trace"];
  EXPECT_EQ(trace["log_limit"], 256 << 20);
  EXPECT_EQ(trace["history_start_ns"], 77);
  EXPECT_EQ(trace["tracer_bytes"], 4096);

  run.log_limit_bytes = run.history_start_ns = run.tracer_bytes = 0;
  const auto without = nlohmann::json::parse(Report(run))["trace"];
  EXPECT_TRUE(without["log_limit"].is_null());
  EXPECT_EQ(without["history_start_ns"], 0);
  EXPECT_TRUE(without["tracer_bytes"].is_null());
}

TEST(Json, ListsCommunicatorsAndGraphs) {
  const auto parsed = nlohmann::json::parse(Report(testing::GroupsRun()));
  const auto& device = parsed["devices"][0];
  ASSERT_EQ(device["communicators"].size(), 1U);
  const auto& communicator = device["communicators"][0];
  EXPECT_EQ(communicator["bytes_asked_for"], 484 << 20);
  EXPECT_EQ(communicator["bytes_at_peak"], 484 << 20);
  EXPECT_EQ(communicator["bytes_at_end"], 0);
  EXPECT_EQ(communicator["rank"], 3);
  EXPECT_EQ(communicator["ranks"], 8);
  EXPECT_EQ(communicator["unique_id"], 0xabcdef);
  EXPECT_TRUE(communicator["split_from"].is_null());
  ASSERT_EQ(device["graphs"].size(), 1U);
  EXPECT_EQ(device["graphs"][0]["bytes_at_end"], 2 << 20);
  EXPECT_EQ(device["graphs"][0]["memory_node_bytes"], 64 << 20);
  const auto& ledger = device["snapshots"][0]["ledger"];
  EXPECT_EQ(ledger["managed_on_device"], 100 << 20);
  EXPECT_EQ(ledger["unexplained"].get<int64_t>() + (616LL << 20),
            ledger["residual"]);
}

TEST(Json, HasNoDeviceForAnEmptyRun) {
  const auto parsed = nlohmann::json::parse(Report(testing::EmptyRun()));
  EXPECT_TRUE(parsed["devices"].empty());
  EXPECT_TRUE(parsed["process"]["rank"].is_null());
}

TEST(Json, PutsSeveralReportsIntoOneArray) {
  const std::string one = Report(testing::EmptyRun());
  const auto parsed = nlohmann::json::parse(JsonArray({one, one}));
  EXPECT_EQ(parsed.size(), 2u);
}

}  // namespace
}  // namespace dstrace::report
