// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/groups.h"

#include "analyzer/model/build_run.h"
#include "gtest/gtest.h"
#include "tests/support/vector_source.h"

namespace dstrace::model {
namespace {

using dstrace::testing::VectorSource;

constexpr uint64_t kMiB = 1 << 20;

class GroupsTest : public ::testing::Test {
 protected:
  void Alloc(uint64_t time, uint64_t address, uint64_t size,
             std::string_view label = {}, uint32_t thread = 1) {
    source_.Add(DeviceEvent{.time = time,
                            .thread = thread,
                            .kind = DeviceKind::kAlloc,
                            .device = 0,
                            .address = address,
                            .size = size,
                            .api = "cuMemAlloc_v2",
                            .label = label});
  }
  void Free(uint64_t time, uint64_t address) {
    source_.Add(DeviceEvent{.time = time,
                            .thread = 1,
                            .kind = DeviceKind::kFree,
                            .address = address});
  }
  DeviceEvent Communicator(uint64_t time, std::string_view api,
                           uint64_t handle) {
    return {.time = time,
            .thread = 1,
            .kind = DeviceKind::kCommunicator,
            .device = 0,
            .handle = handle,
            .api = api};
  }
  DeviceEvent Graph(uint64_t time, std::string_view api, uint64_t stream,
                    uint64_t handle = 0) {
    return {.time = time,
            .thread = 1,
            .kind = DeviceKind::kGraph,
            .device = 0,
            .handle = handle,
            .stream = stream,
            .api = api};
  }
  dstrace::model::Run Build() {
    auto run = BuildRun(source_, {});
    EXPECT_TRUE(run.ok()) << run.status();
    return *std::move(run);
  }
  static uint64_t Held(const dstrace::model::Run& run, size_t snapshot,
                       GroupId id) {
    const auto& groups = run.devices.at(0).snapshots.at(snapshot).groups;
    const auto found = groups.find(id);
    return found == groups.end() ? 0 : found->second;
  }

  VectorSource source_;
};

TEST_F(GroupsTest, ACommunicatorHasWhatWasAskedForBeneathTheCallThatMadeIt) {
  constexpr char kInit[] = "ncclCommInitRankConfig";
  Alloc(10, 0x1000, kMiB, "cudaMalloc");
  Alloc(20, 0x2000, 4 * kMiB, kInit);
  Alloc(25, 0x9000, 64 * kMiB, kInit, /*thread=*/2);  // another one
  Alloc(30, 0x3000, 2 * kMiB, kInit);
  DeviceEvent made = Communicator(40, kInit, 0xc0);
  made.size = 8;
  made.flags = 3;
  made.address = 0xabcdef;
  source_.Add(made);
  Alloc(50, 0x4000, 16 * kMiB, "cudaMalloc");
  Free(60, 0x2000);
  DeviceEvent finalize = Communicator(70, "ncclCommFinalize", 0xc0);
  finalize.size = 5 * kMiB;
  source_.Add(finalize);
  source_.Add(Communicator(80, "ncclCommDestroy", 0xc0));

  const auto run = Build();

  ASSERT_EQ(run.groups.size(), 2U);
  const Group& group = run.groups[0];
  EXPECT_EQ(group.kind, Group::Kind::kCommunicator);
  EXPECT_TRUE(group.complete);
  EXPECT_EQ(group.bytes, 6 * kMiB);
  EXPECT_EQ(group.count, 2U);
  EXPECT_EQ(group.ranks, 8U);
  EXPECT_EQ(group.rank, 3U);
  EXPECT_EQ(group.unique_id, 0xabcdefU);
  EXPECT_EQ(group.created_ns, 40U);
  EXPECT_EQ(group.ended_ns, 80U);
  EXPECT_EQ(group.nccl_bytes, 5 * kMiB);
  EXPECT_EQ(Held(run, 0, 1), 6 * kMiB);
  EXPECT_EQ(Held(run, 1, 1), 2 * kMiB);
  EXPECT_FALSE(run.groups[1].complete);  // still in the making
  EXPECT_EQ(run.groups[1].bytes, 64 * kMiB);
}

TEST_F(GroupsTest, AFailedCommunicatorLeavesNothingToTheNextOne) {
  Alloc(10, 0x1000, kMiB, "ncclCommInitRank");
  DeviceEvent failed = Communicator(20, "ncclCommInitRank", 0);
  failed.result = 2;
  source_.Add(failed);
  Alloc(30, 0x2000, 4 * kMiB, "ncclCommSplit");
  DeviceEvent made = Communicator(40, "ncclCommSplit", 0xc1);
  made.address = 0xc0;
  source_.Add(made);

  const auto run = Build();

  ASSERT_EQ(run.groups.size(), 2U);
  EXPECT_FALSE(run.groups[0].complete);
  EXPECT_TRUE(run.groups[1].complete);
  EXPECT_TRUE(run.groups[1].split);
  EXPECT_EQ(run.groups[1].bytes, 4 * kMiB);
  EXPECT_EQ(run.groups[1].split_from, 0xc0U);
  EXPECT_EQ(run.groups[1].unique_id, 0U);  // its parent was not seen
}

TEST_F(GroupsTest, ASplitCommunicatorIsNamedAfterItsParent) {
  DeviceEvent parent = Communicator(10, "ncclCommInitRank", 0xc0);
  parent.address = 0xabcdef;
  source_.Add(parent);
  DeviceEvent part = Communicator(20, "ncclCommSplit", 0xc1);
  part.address = 0xc0;
  source_.Add(part);
  Alloc(30, 0x1000, kMiB);

  const auto run = Build();

  ASSERT_EQ(run.groups.size(), 2U);
  EXPECT_EQ(run.groups[1].unique_id, 0xabcdefU);
  EXPECT_TRUE(run.groups[1].complete);
}

// torch fills a graph's private pool during its capture; the backward pass
// does so from a thread of its own.
TEST_F(GroupsTest, AGraphHasWhatWasAskedForDuringItsCapture) {
  Alloc(10, 0x1000, kMiB);
  source_.Add(Graph(20, "cuStreamBeginCapture_v2", 0x51));
  Alloc(30, 0x2000, 20 * kMiB);
  Alloc(40, 0x3000, 2 * kMiB, {}, /*thread=*/7);
  source_.Add(Graph(50, "cuStreamEndCapture", 0x51, 0x99));
  Alloc(60, 0x4000, 5 * kMiB);
  Free(70, 0x2000);

  const auto run = Build();

  ASSERT_EQ(run.groups.size(), 1U);
  const Group& group = run.groups[0];
  EXPECT_EQ(group.kind, Group::Kind::kGraph);
  EXPECT_TRUE(group.complete);
  EXPECT_EQ(group.handle, 0x99U);
  EXPECT_EQ(group.bytes, 22 * kMiB);
  EXPECT_EQ(group.node_bytes, 0U);
  EXPECT_EQ(Held(run, 0, 1), 22 * kMiB);
  EXPECT_EQ(Held(run, 1, 1), 2 * kMiB);
}

TEST_F(GroupsTest, MemoryNodesBelongToTheirGraphCapturedOrBuilt) {
  source_.Add(Graph(10, "cuStreamBeginCapture_v2", 0x51));
  DeviceEvent node = Graph(20, "cuMemAllocAsync", 0x51);
  node.address = 0x2000;
  node.size = 64 * kMiB;
  source_.Add(node);
  source_.Add(Graph(30, "cuStreamEndCapture", 0x51, 0x99));
  node = Graph(40, "cuGraphAddMemAllocNode", 0, 0x77);
  node.address = 0x8000;
  node.size = 3 * kMiB;
  source_.Add(node);
  source_.Add(Graph(50, "cuGraphDestroy", 0, 0x77));
  node.time = 60;  // the same number, another graph
  source_.Add(node);

  const auto run = Build();

  ASSERT_EQ(run.groups.size(), 3U);
  EXPECT_EQ(run.groups[0].node_bytes, 64 * kMiB);
  EXPECT_EQ(run.groups[1].node_bytes, 3 * kMiB);
  EXPECT_EQ(run.groups[2].node_bytes, 3 * kMiB);
}

}  // namespace
}  // namespace dstrace::model
