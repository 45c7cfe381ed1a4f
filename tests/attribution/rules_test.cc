// SPDX-License-Identifier: Apache-2.0
#include "analyzer/attribution/rules.h"

#include <gtest/gtest.h>

#include "analyzer/attribution/builtin_rules.h"
#include "analyzer/attribution/glob.h"

namespace dstrace::attribution {
namespace {

TEST(GlobMatch, KnowsStarsAndQuestionMarks) {
  EXPECT_TRUE(GlobMatch("*torch/optim/*", "/a/torch/optim/adam.py"));
  EXPECT_TRUE(GlobMatch("_multi_tensor_adam*", "_multi_tensor_adamw"));
  EXPECT_TRUE(GlobMatch("?b*", "ab"));
  EXPECT_TRUE(GlobMatch("*", ""));
  EXPECT_TRUE(GlobMatch("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(GlobMatch("a*b", "a-b-c"));
  EXPECT_FALSE(GlobMatch("", "a"));
}

TEST(GlobMatch, IsNotSlowOnManyStars) {
  EXPECT_FALSE(GlobMatch("*a*a*a*a*a*a*a*a*b", std::string(5000, 'a')));
}

TEST(FunctionMatch, FindsTheEndOfAQualifiedName) {
  EXPECT_TRUE(FunctionMatch("_allgather_params*",
                            "Init._convert.<locals>._allgather_params"));
  EXPECT_TRUE(FunctionMatch("Linear.__init__", "nn.Linear.__init__"));
  EXPECT_TRUE(FunctionMatch("Engine::*", "torch::autograd::Engine::run"));
  EXPECT_FALSE(FunctionMatch("gather", "_allgather"));
}

TEST(FileMatch, TakesATailAtASlash) {
  EXPECT_TRUE(
      FileMatch("zero/stage3.py", "/x/deepspeed/runtime/zero/stage3.py"));
  EXPECT_FALSE(FileMatch("stage3.py", "/x/my_stage3.py"));
  EXPECT_TRUE(FileMatch("*stage3.py", "/x/my_stage3.py"));
}

TEST(RuleSet, ParsesEachBuiltInFile) {
  EXPECT_FALSE(kBuiltInRules.empty());
  for (const BuiltInFile& file : kBuiltInRules) {
    const auto parsed = RuleSet::Parse(file.text, std::string(file.name));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
  }
}

TEST(RuleSet, HasWordsOfBoundedLengthForEachRule) {
  for (const Rule& rule : RuleSet::BuiltIn().rules()) {
    EXPECT_LE(rule.label.size(), 30u) << rule.tag;
    EXPECT_FALSE(rule.category.empty()) << rule.tag;
    EXPECT_FALSE(rule.explanation.empty()) << rule.tag;
    EXPECT_TRUE(rule.advice.empty() || rule.advice.back() == '.') << rule.tag;
  }
}

TEST(RuleSet, SaysWhereAFileIsWrong) {
  const auto error = [](std::string_view text) {
    return std::string(RuleSet::Parse(text, "my.json").status().message());
  };
  EXPECT_EQ(error("{\"rules\": [}"), "my.json: invalid JSON at byte 12");
  EXPECT_EQ(error("[]"), "my.json: is not a JSON object");
  EXPECT_EQ(error("{\"rules\": [{\"tag\": \"t\"}]}"),
            "my.json: rule 1: \"t\" has no \"match\"");
  EXPECT_EQ(error("{\"rules\": [{\"match\": [{\"function\": 3}]}]}"),
            "my.json: rule 1: unknown or malformed field \"match\"");
  EXPECT_EQ(error("{\"rules\": [{\"tga\": \"t\"}]}"),
            "my.json: rule 1: unknown or malformed field \"tga\"");
}

TEST(RuleSet, SaysThatAFileCannotBeRead) {
  EXPECT_EQ(RuleSet::Load("/nonexistent.json").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(RuleSet::Load("/").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace dstrace::attribution
