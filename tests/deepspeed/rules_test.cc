// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/rules.h"

#include <gtest/gtest.h>

#include <set>

#include "analyzer/deepspeed/config_check.h"
#include "tests/deepspeed/test_files.h"

namespace dstrace::deepspeed {
namespace {

TEST(Rules, EveryCombinationCitesItsSourceAndHasItsOwnId) {
  std::set<std::string> ids;
  for (const CombinationRule& rule : RuleSet::BuiltIn().combinations()) {
    EXPECT_NE(rule.source.find(".py:"), std::string::npos) << rule.id;
    EXPECT_FALSE(rule.message.empty()) << rule.id;
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id;
  }
  EXPECT_GE(ids.size(), 40u);
}

TEST(Rules, OperationsAreOnesTheCheckKnows) {
  const std::set<std::string> known = {
      "present", "absent",  "auto",     "null",    "equals", "not_equals",
      "less",    "greater", "at_least", "at_most", "one_of", "not_divides"};
  for (const CombinationRule& rule : RuleSet::BuiltIn().combinations()) {
    for (const Condition& condition : rule.when) {
      EXPECT_EQ(known.count(condition.operation), 1u)
          << rule.id << " " << condition.operation;
    }
  }
}

TEST(Rules, OneSectionHoldsPerPathAndRelease) {
  const RuleSet& rules = RuleSet::BuiltIn();
  const SectionRule* before = rules.FindSection("fp16", {0, 17, 0});
  const SectionRule* after = rules.FindSection("fp16", {0, 17, 1});

  ASSERT_NE(before, nullptr);
  ASSERT_NE(after, nullptr);
  EXPECT_EQ(before->unknown, UnknownKeys::kIgnored);
  EXPECT_EQ(after->unknown, UnknownKeys::kRejected);
}

TEST(Rules, AFileAddsRulesAndKeys) {
  absl::StatusOr<RuleSet> rules = RuleSet::WithExtension(
      R"({"sections": [{"path": "", "unknown": "ignore", "keys":
            {"our_key": {"type": "int"}}}],
          "rules": [{"id": "house-stage", "severity": "warning",
            "when": [{"key": "zero_optimization.stage", "is": "less",
                      "value": 3}],
            "message": "house rule: stage {value}", "change": "stage 3",
            "source": "house.md"}]})");
  ASSERT_TRUE(rules.ok()) << rules.status();

  ConfigReport report = CheckConfig(
      "{\"train_batch_size\": 8, \"our_key\": 1, \"zero_optimization\": "
      "{\"stage\": 2}}",
      {}, *rules);

  const Finding* finding = FindRule(report.findings, "house-stage");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->message, "house rule: stage 2");
  EXPECT_EQ(FindRule(report.findings, "ignored-key", "our_key"), nullptr);
}

TEST(Rules, ABrokenFileSaysWhichEntry) {
  EXPECT_FALSE(RuleSet::WithExtension("{").ok());
  absl::StatusOr<RuleSet> rules = RuleSet::WithExtension(
      R"({"rules": [{"id": "x", "when": [{"key": "a"}]}]})");
  ASSERT_FALSE(rules.ok());
  EXPECT_NE(std::string(rules.status().message()).find("rule x"),
            std::string::npos);
}

TEST(Versions, ReadWhatPackagesPrint) {
  EXPECT_EQ(*ParseVersion("0.10.1"), (Version{0, 10, 1}));
  EXPECT_EQ(*ParseVersion("2.0.1+cu118"), (Version{2, 0, 1}));
  EXPECT_EQ(*ParseVersion("v0.19"), (Version{0, 19, 0}));
  EXPECT_FALSE(ParseVersion("latest").ok());
  EXPECT_FALSE(ParseVersion("99999999999").ok());
}

}  // namespace
}  // namespace dstrace::deepspeed
