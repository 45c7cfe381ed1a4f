// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/graph_memory.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dstrace::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr OwnerId kOwner = 3;
constexpr StackId kAskedBy = 8;

std::map<StackId, uint64_t> ByStack(const std::vector<DeviceAllocation>& all) {
  std::map<StackId, uint64_t> bytes;
  for (const DeviceAllocation& share : all) bytes[share.stack] += share.size;
  return bytes;
}

TEST(GraphMemory, SharesAreAsTheLargestNodesOfTheStacksAreToEachOther) {
  GraphMemory memory;
  memory.AddNode(0, 5, 0x1000, 30);
  memory.AddNode(0, 5, 0x2000, 20);
  memory.AddNode(0, 6, 0x3000, 10);
  EXPECT_THAT(ByStack(memory.MakeShares(0, 44, kAskedBy, kOwner)),
              ElementsAre(Pair(5, 33), Pair(6, 11)));
}

TEST(GraphMemory, SharesAddUpToTheDriversFigureWhateverTheWeights) {
  for (uint64_t reserved = 1; reserved < 200; ++reserved) {
    GraphMemory memory;
    memory.AddNode(0, 5, 0x1000, 7);
    memory.AddNode(0, 6, 0x2000, 11);
    memory.AddNode(0, 7, 0x3000, 13);
    uint64_t sum = 0;
    for (const auto& share : memory.MakeShares(0, reserved, kAskedBy, kOwner)) {
      EXPECT_GT(share.size, 0U);
      EXPECT_EQ(share.owner, kOwner);
      sum += share.size;
    }
    ASSERT_EQ(sum, reserved);
  }
}

TEST(GraphMemory, WithoutANodeAllOfItIsWhoseStackAsked) {
  GraphMemory memory;
  memory.AddNode(1, 5, 0x1000, 30);  // of another device
  EXPECT_THAT(ByStack(memory.MakeShares(0, 44, kAskedBy, kOwner)),
              ElementsAre(Pair(kAskedBy, 44)));
}

TEST(GraphMemory, EndsTheSharesOfOneDeviceOnly) {
  GraphMemory memory;
  static_cast<void>(memory.MakeShares(0, 10, kAskedBy, kOwner));
  static_cast<void>(memory.MakeShares(1, 20, kAskedBy, kOwner));
  EXPECT_THAT(ByStack(memory.EndShares(0)), ElementsAre(Pair(kAskedBy, 10)));
  EXPECT_THAT(memory.EndShares(0), IsEmpty());
  uint64_t live = 0;
  memory.ForEachLive([&](const DeviceAllocation& share) {
    EXPECT_EQ(share.device, 1);
    live += share.size;
  });
  EXPECT_EQ(live, 20U);
}

TEST(GraphMemory, AnAddressOfANodeIsKnownOnce) {
  GraphMemory memory;
  memory.AddNode(0, 5, 0x1000, 30);
  EXPECT_FALSE(memory.TakeAddress(0x2000));
  EXPECT_TRUE(memory.TakeAddress(0x1000));
  EXPECT_FALSE(memory.TakeAddress(0x1000));
}

}  // namespace
}  // namespace dstrace::model
