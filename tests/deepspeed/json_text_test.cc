// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/json_text.h"

#include <gtest/gtest.h>

#include "analyzer/deepspeed/nearest.h"

namespace dstrace::deepspeed {
namespace {

TEST(JsonText, KnowsThePlaceOfEveryKeyAndValue) {
  JsonText json = ReadJson("{\n  \"a\": {\"b\": [1, -2.5e3, true, null]}\n}");

  ASSERT_TRUE(json.complete);
  EXPECT_TRUE(json.problems.empty());
  const JsonMember* member = FindPath(json.root, "a.b");
  ASSERT_NE(member, nullptr);
  EXPECT_EQ(member->place.line, 2);
  EXPECT_EQ(member->place.column, 9);
  ASSERT_EQ(member->value.items.size(), 4u);
  EXPECT_EQ(member->value.items[1].number, -2500);
  EXPECT_EQ(member->value.items[3].kind, JsonKind::kNull);
}

TEST(JsonText, NamesAMissingCommaAndReadsOn) {
  JsonText json = ReadJson("{\n\"x\": 5e8\n  \"y\": 1,\n\"z\": 2}");

  ASSERT_EQ(json.problems.size(), 1u);
  EXPECT_TRUE(json.complete);
  EXPECT_EQ(json.problems[0].place.line, 3);
  EXPECT_EQ(json.problems[0].place.column, 3);
  EXPECT_EQ(json.problems[0].message, "missing comma before \"y\"");
  EXPECT_TRUE(json.problems[0].hjson_accepts);
  EXPECT_NE(FindPath(json.root, "z"), nullptr);
}

TEST(JsonText, SaysWhichBracketIsNeverClosed) {
  JsonText json = ReadJson("{\n \"a\": {\n  \"b\": 1\n}");

  EXPECT_FALSE(json.complete);
  ASSERT_EQ(json.problems.size(), 1u);
  EXPECT_NE(json.problems[0].message.find("the \"{\" of line 1"),
            std::string::npos)
      << json.problems[0].message;
}

struct Mistake {
  const char* text;
  const char* message;
  bool complete;
};

class JsonMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(JsonMistakes, AreNamed) {
  JsonText json = ReadJson(GetParam().text);

  ASSERT_FALSE(json.problems.empty());
  EXPECT_NE(json.problems[0].message.find(GetParam().message),
            std::string::npos)
      << json.problems[0].message;
  EXPECT_EQ(json.complete, GetParam().complete);
}

INSTANTIATE_TEST_SUITE_P(
    All, JsonMistakes,
    testing::Values(
        Mistake{"", "the file is empty", false},
        Mistake{"[1]", "not a JSON object", false},
        Mistake{"{\"a\": 1,}", "a comma before the closing \"}\"", true},
        Mistake{"{\"a\": [1, 2,]}", "a comma before the closing \"]\"", true},
        Mistake{"{\"a\": 1,, \"b\": 2}", "two commas", false},
        Mistake{"{\"a\" 1}", "missing colon after \"a\"", true},
        Mistake{"{\"a\" = 1}", "in place of the colon", true},
        Mistake{"{a: 1}", "missing quotes around the key \"a\"", true},
        Mistake{"{\"a\": cpu}", "missing quotes around \"cpu\"", true},
        Mistake{"{'a': 1}", "single quotes", true},
        Mistake{"{\"a\": True}", "True is Python", true},
        Mistake{"{\"a\": None}", "None is Python", true},
        Mistake{"{\"a\": 1 // one\n}", "a comment", true},
        Mistake{"{\"a\": /* x */ 1}", "a comment", true},
        Mistake{"{\"a\": 05}", "not a JSON number", true},
        Mistake{"{\"a\": 1_000}", "not a JSON number", true},
        Mistake{"{\"a\": .5}", "not a JSON number", true},
        Mistake{"{\"a\": \"x\n}", "missing closing quote", true},
        Mistake{"{\"a\": }", "missing value before \"}\"", false},
        Mistake{"{\"a\": 1]", "missing comma or \"}\" before \"]\"", false},
        Mistake{"{\"a\": 1} x", "text after the end", false},
        Mistake{"{\"a\": \"\\x\"}", "not an escape", true},
        Mistake{"\xEF\xBB\xBF{}", "byte order mark", true}));

TEST(JsonText, ReadsEscapesAndUnicode) {
  JsonText json = ReadJson("{\"a\": \"\\u00e9\\n\\\"\\u20ac\"}");

  EXPECT_TRUE(json.problems.empty());
  EXPECT_EQ(FindPath(json.root, "a")->value.text, "\xC3\xA9\n\"\xE2\x82\xAC");
}

TEST(JsonText, AcceptsWhatPythonAcceptsBeyondJson) {
  JsonText json = ReadJson("{\"steps\": Infinity, \"x\": NaN}");

  EXPECT_TRUE(json.complete);
  EXPECT_TRUE(json.problems.empty());
}

TEST(JsonText, ListsRepeatedKeysAndUsesTheLast) {
  JsonText json = ReadJson("{\"a\": 1,\n\"a\": 2}");

  ASSERT_EQ(json.duplicates.size(), 1u);
  EXPECT_EQ(json.duplicates[0].place.line, 2);
  EXPECT_EQ(FindPath(json.root, "a")->value.number, 2);
}

TEST(JsonText, StopsAtHostileNesting) {
  std::string deep(200000, '[');

  JsonText json = ReadJson("{\"a\": " + deep);

  EXPECT_FALSE(json.complete);
  EXPECT_EQ(json.problems[0].message, "nested too deeply");
}

TEST(Nearest, CountsASwapAsOneEdit) {
  EXPECT_EQ(EditDistance("stage", "stgae"), 1);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("overlap_com", "overlap_comm"), 1);
}

TEST(Nearest, GivesNothingWhenNothingIsNear) {
  EXPECT_EQ(NearestName("stage3_max_live_params",
                        {"stage3_max_live_parameters", "stage"}),
            "stage3_max_live_parameters");
  EXPECT_EQ(NearestName("completely_else", {"stage", "overlap_comm"}), "");
}

}  // namespace
}  // namespace dstrace::deepspeed
