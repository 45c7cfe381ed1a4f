// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/folded.h"

#include <gtest/gtest.h>

#include "tests/report/golden.h"
#include "tests/report/sample_runs.h"

namespace dstrace::report {
namespace {

std::vector<FoldedStack> Stacks(const model::Run& run,
                                const FoldedOptions& options = {}) {
  View view(run, attribution::RuleSet::BuiltIn());
  return FoldedStacks(view, options);
}

uint64_t Sum(const std::vector<FoldedStack>& stacks) {
  uint64_t sum = 0;
  for (const FoldedStack& stack : stacks) sum += stack.bytes;
  return sum;
}

TEST(Folded, WritesWhatHoldsMemoryAtThePeak) {
  testing::ExpectGolden("regather.folded",
                        Folded(Stacks(testing::RegatherRun())));
}

TEST(Folded, WritesWhoMadeTorchReserve) {
  FoldedOptions options;
  options.reserved = true;
  testing::ExpectGolden("regather_reserved.folded",
                        Folded(Stacks(testing::RegatherRun(), options)));
}

TEST(Folded, AddsUpToTheDeviceUse) {
  const model::Run run = testing::RegatherRun();
  EXPECT_EQ(Sum(Stacks(run)), run.devices[0].snapshots[0].ledger.device_used);
}

TEST(Folded, KeepsSeparatorsOutOfNames) {
  model::Run run = testing::NoTorchRun();
  run.stacks.frames[1].name = "a;b\nc";
  run.stacks.frames[1].module = -1;
  const std::string text = Folded(Stacks(run));
  EXPECT_NE(text.find(";a,b?c;"), std::string::npos) << text;
}

TEST(Folded, NamesUnnamedCodeByItsLibraryOnce) {
  model::Run run = testing::NoTorchRun();
  const model::StackId id = testing::AddStack(
      &run.stacks, {testing::Native("cudaMalloc", 0), testing::Native("", 1),
                    testing::Native("", 1), testing::Native("main", 3)});
  run.devices[0].snapshots[0].holdings[0].stack = id;
  const std::string text = Folded(Stacks(run));
  EXPECT_NE(text.find(";main (solver);[libtorch_cuda.so];cudaMalloc "),
            std::string::npos)
      << text;
}

TEST(Folded, TakesTheDriversBytesWhereTensorsWereNotSeen) {
  model::Run run = testing::NoTorchRun();
  run.devices[0].snapshots[0].holdings[0].owner = "torch";
  run.devices[0].snapshots[0].ledger.libraries.clear();
  run.devices[0].snapshots[0].ledger.torch_reserved = 2048 * testing::kMiB;
  run.devices[0].snapshots[0].ledger.torch_cached = 2048 * testing::kMiB;
  EXPECT_EQ(Sum(Stacks(run)), 2560 * testing::kMiB);
}

TEST(Folded, HasNothingToSayOfAnotherGpu) {
  FoldedOptions options;
  options.device = 5;
  EXPECT_TRUE(Stacks(testing::RegatherRun(), options).empty());
}

}  // namespace
}  // namespace dstrace::report
