// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/svg.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "tests/report/sample_runs.h"

namespace dstrace::report {
namespace {

size_t Times(const std::string& text, const std::string& part) {
  size_t times = 0;
  for (size_t at = text.find(part); at != text.npos;
       at = text.find(part, at + 1)) {
    ++times;
  }
  return times;
}

std::vector<FoldedStack> Stacks(const model::Run& run) {
  View view(run, attribution::RuleSet::BuiltIn());
  return FoldedStacks(view, {});
}

// Nodes of the tree that the stacks make, its root included.
size_t Nodes(const std::vector<FoldedStack>& stacks) {
  std::set<std::string> paths = {""};
  for (const FoldedStack& stack : stacks) {
    std::string path;
    for (const auto& frame : stack.frames) {
      path += '\n' + frame.name;
      paths.insert(path);
    }
  }
  return paths.size();
}

// Parsed by a real XML parser, which Python brings.
int XmlStatus(const std::string& svg) {
  const std::string path = ::testing::TempDir() + "dstrace_svg_test_" +
                           std::to_string(getpid()) + ".svg";
  std::ofstream(path, std::ios::binary) << svg;
  const int status = std::system((std::string(DSTRACE_PYTHON) +
                                  " -c 'import sys, xml.dom.minidom; "
                                  "xml.dom.minidom.parse(sys.argv[1])' " +
                                  path)
                                     .c_str());
  unlink(path.c_str());
  return status;
}

TEST(Svg, HoldsEveryFrame) {
  for (const model::Run& run :
       {testing::RegatherRun(), testing::OutOfMemoryRun(),
        testing::TensorsOnlyRun(), testing::NoTorchRun()}) {
    const std::vector<FoldedStack> stacks = Stacks(run);
    const std::string svg = Svg(stacks, "title");
    EXPECT_EQ(Times(svg, "<g class=\"f\""), Nodes(stacks));
  }
}

TEST(Svg, IsXmlForAnyNames) {
  std::vector<FoldedStack> stacks = Stacks(testing::RegatherRun());
  stacks[0].frames.push_back(
      {"<a & \"b\"> ]]> \x01\x1b[0m \xff \xed\xa0\x80"
       " \xef\xbf\xbe caf\xc3\xa9",
       FoldedStack::Kind::kUser});
  EXPECT_EQ(XmlStatus(Svg(stacks, "<&\"'\x02>")), 0);
}

TEST(Svg, FindsItsOwnMistakes) { EXPECT_NE(XmlStatus("<svg><g></svg>"), 0); }

TEST(Svg, NeedsNothingFromOutside) {
  const std::string svg = Svg(Stacks(testing::RegatherRun()), "title");
  EXPECT_EQ(Times(svg, "http"), 1u);  // the name space
  EXPECT_EQ(svg.find("href"), svg.npos);
}

TEST(Svg, SaysThatNothingWasHeld) {
  const std::string svg = Svg({}, "title");
  EXPECT_NE(svg.find("No memory was held."), svg.npos);
  EXPECT_EQ(XmlStatus(svg), 0);
}

}  // namespace
}  // namespace dstrace::report
