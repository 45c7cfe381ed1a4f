// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/text.h"

#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "analyzer/report/format.h"
#include "tests/report/golden.h"
#include "tests/report/sample_runs.h"

namespace dstrace::report {
namespace {

using testing::ExpectGolden;

std::string Report(const model::Run& run, const TextOptions& options = {}) {
  View view(run, attribution::RuleSet::BuiltIn());
  return Text(view, options);
}

TEST(Text, TellsTheRegatherCase) {
  ExpectGolden("regather.txt", Report(testing::RegatherRun()));
}
TEST(Text, TellsAnOutOfMemory) {
  ExpectGolden("oom.txt", Report(testing::OutOfMemoryRun()));
}
TEST(Text, SaysThatNothingHappened) {
  ExpectGolden("empty.txt", Report(testing::EmptyRun()));
}
TEST(Text, SaysThatOnlyTensorsWereSeen) {
  ExpectGolden("tensors_only.txt", Report(testing::TensorsOnlyRun()));
}
TEST(Text, SaysThatTorchWasNotSeen) {
  ExpectGolden("no_torch.txt", Report(testing::NoTorchRun()));
}

TEST(Text, PrintsWholeStacksWhenAsked) {
  TextOptions options;
  options.stacks = true;
  const std::string text = Report(testing::RegatherRun(), options);
  EXPECT_NE(text.find("      main (train.py:40)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("      at::detail::empty_generic (libtorch_cuda.so)\n"),
            std::string::npos);
}

TEST(Text, IsNeverWiderThanItsWidth) {
  for (const model::Run& run :
       {testing::RegatherRun(), testing::OutOfMemoryRun(),
        testing::TensorsOnlyRun(), testing::NoTorchRun()}) {
    for (const size_t width : {80u, 100u, 120u}) {
      TextOptions options;
      options.width = width;
      options.stacks = true;
      const std::vector<std::string> lines =
          absl::StrSplit(Report(run, options), '\n');
      for (const std::string& line : lines)
        EXPECT_LE(Columns(line), width) << line;
    }
  }
}

TEST(Text, ListsWhatIsBelowTheTop) {
  TextOptions options;
  options.top = 1;
  EXPECT_NE(Report(testing::RegatherRun(), options).find("in 3 smaller rows"),
            std::string::npos);
}

TEST(Text, HasATableOfCommunicatorsAndGraphs) {
  const model::Run run = testing::GroupsRun();
  const std::string text = Report(run);
  const auto has = [&](const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  };
  has("What each NCCL communicator and CUDA graph asked the driver for");
  has("   484.0 MiB         0 B   484.0 MiB  communicator 00abcdef, rank 3 of "
      "8");
  has(", 2.00 s to 9.00 s");
  has("    22.0 MiB     2.0 MiB    22.0 MiB  graph; its memory nodes 64.0 "
      "MiB");
  EXPECT_EQ(text.find("777"), std::string::npos) << "it never came to be";
  has("managed memory on the device (deduced)");
  EXPECT_EQ(Report(testing::NoTorchRun()).find("CUDA graph"),
            std::string::npos);
}

TEST(Text, SaysWhenAGpuWasNotUsed) {
  TextOptions options;
  options.device = 7;
  EXPECT_NE(Report(testing::RegatherRun(), options).find("GPU 7 was not used"),
            std::string::npos);
}

TEST(Text, SaysWhenAnInstantIsNotKnown) {
  TextOptions options;
  options.at = "mark:nowhere";
  EXPECT_NE(Report(testing::RegatherRun(), options)
                .find("Nothing is known at \"mark:nowhere\""),
            std::string::npos);
}

TEST(Text, UsesColourOnlyWhenAsked) {
  TextOptions options;
  EXPECT_EQ(Report(testing::RegatherRun(), options).find('\033'),
            std::string::npos);
  options.colour = true;
  EXPECT_NE(Report(testing::RegatherRun(), options).find("\033[1m"),
            std::string::npos);
}

TEST(RankTable, HasALinePerDevice) {
  const model::Run first = testing::RegatherRun();
  model::Run second = testing::RegatherRun();
  second.process.rank = 1;
  ExpectGolden("ranks.txt",
               RankTable({{"a.pb", &first}, {"b.pb", &second}}, 100));
}

}  // namespace
}  // namespace dstrace::report
