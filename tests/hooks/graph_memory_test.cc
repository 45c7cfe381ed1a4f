// SPDX-License-Identifier: Apache-2.0
//
// Device memory that no allocation of its own tells of: what the memory nodes
// of graphs hold, what the driver takes when managed memory is touched, and
// what the program asks the driver itself.
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "tests/hooks/exercises.h"

namespace dstrace::hooks::testing {
namespace {

constexpr uint64_t kMiB = 1 << 20;
const CUstream kStream = reinterpret_cast<CUstream>(0x71);

class GraphMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuInit(0), 0);
    CUcontext context = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), 0);
    ASSERT_EQ(cuCtxSetCurrent(context), 0);
    FakeRecorderClear();
  }

  // What was recorded of graphs' memory, in order; forgets it.
  static std::vector<uint64_t> Reserved() {
    std::vector<uint64_t> found;
    for (const DeviceEvent& event : FakeRecorderGet().events) {
      if (std::string(event.api) != "cuDeviceGetGraphMemAttribute") continue;
      EXPECT_EQ(event.kind, DeviceKind::kGraph);
      EXPECT_EQ(event.device, 0);
      found.push_back(event.size);
    }
    FakeRecorderClear();
    return found;
  }
};

using Values = std::vector<uint64_t>;

// A program without memory nodes is never slowed down by the question.
TEST_F(GraphMemory, IsNotAskedForBeforeAGraphAllocates) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, 64 * kMiB), 0);
  ASSERT_EQ(cuMemFree_v2(address), 0);
  EXPECT_EQ(Reserved(), Values());
}

TEST_F(GraphMemory, IsRecordedWhenALaunchTakesItAndWhenItIsGivenBack) {
  CUgraph graph = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph, 0), 0);
  CUgraphNode node = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.bytesize = 48 * kMiB;
  ASSERT_EQ(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params), 0);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
  EXPECT_EQ(Reserved(), Values());
  ASSERT_EQ(cuGraphLaunch(exec, nullptr), 0);
  // A change of that size is a reason for a sample, whatever the time.
  ASSERT_FALSE(FakeRecorderGet().samples.empty());
  EXPECT_EQ(Reserved(), Values({48 * kMiB}));
  ASSERT_EQ(cuGraphLaunch(exec, nullptr), 0);
  EXPECT_EQ(Reserved(), Values());
  ASSERT_EQ(cuGraphExecDestroy(exec), 0);
  EXPECT_EQ(Reserved(), Values({0}));
  ASSERT_EQ(cuGraphDestroy(graph), 0);
  FakeRecorderClear();
}

TEST_F(GraphMemory, ACapturedAllocationIsANodeAndTakesNothingYet) {
  ASSERT_EQ(cuStreamBeginCapture_v2(kStream, 0), 0);
  void* pointer = nullptr;
  ASSERT_EQ(cudaMallocAsync(&pointer, 40 * kMiB, kStream), 0);
  FakeRecorderGet().events.pop_front();  // the beginning
  ASSERT_EQ(FakeRecorderGet().events.size(), 1u);
  const DeviceEvent alloc = FakeRecorderGet().events[0];
  EXPECT_EQ(alloc.kind, DeviceKind::kGraph);
  EXPECT_EQ(alloc.address, Number(pointer));
  EXPECT_EQ(alloc.size, 40 * kMiB);
  EXPECT_STREQ(alloc.label, "cudaMallocAsync");
  FakeRecorderClear();
  ASSERT_EQ(cudaFreeAsync(pointer, kStream), 0);
  ASSERT_EQ(FakeRecorderGet().events.size(), 1u);
  EXPECT_EQ(FakeRecorderGet().events[0].kind, DeviceKind::kGraph);
  EXPECT_EQ(FakeRecorderGet().events[0].size, 0u);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(kStream, &graph), 0);  // nobody ruined it
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
  EXPECT_EQ(Reserved(), Values());
  ASSERT_EQ(cuGraphUpload(exec, nullptr), 0);
  EXPECT_EQ(Reserved(), Values({40 * kMiB}));
  ASSERT_EQ(cuGraphExecDestroy(exec), 0);
  EXPECT_EQ(Reserved(), Values({0}));
}

// On another stream the same calls are what they always are.
TEST_F(GraphMemory, AnAllocationBesideACaptureIsAnAllocation) {
  ASSERT_EQ(cuStreamBeginCapture_v2(kStream, 0), 0);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAllocAsync(&address, kMiB, nullptr), 0);
  EXPECT_EQ(
      TakeEvent({"cuMemAllocAsync", Layer::kDriver}, DeviceKind::kPoolAlloc)
          .address,
      address);
  ASSERT_EQ(cuMemFreeAsync(address, nullptr), 0);
  TakeEvent({"cuMemFreeAsync", Layer::kDriver}, DeviceKind::kPoolFree);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(kStream, &graph), 0);
  FakeRecorderClear();
}

TEST_F(GraphMemory, TheFirstTouchOfManagedMemoryIsMeasured) {
  CUdeviceptr plain = 0;
  ASSERT_EQ(cuMemAlloc_v2(&plain, kMiB), 0);
  CUdeviceptr managed = 0;
  ASSERT_EQ(cuMemAllocManaged(&managed, kMiB, 1), 0);
  FakeRecorderClear();
  ASSERT_EQ(cuMemsetD8_v2(plain, 0, kMiB), 0);
  EXPECT_TRUE(FakeRecorderGet().events.empty());
  ASSERT_EQ(cuMemsetD8_v2(managed, 0, kMiB), 0);
  const DeviceEvent event =
      TakeEvent({"cuMemsetD8_v2", Layer::kDriver}, DeviceKind::kModuleLoad);
  // All of it: which part are pages is for the analyzer to tell.
  EXPECT_EQ(event.size, 60 * kMiB);
  EXPECT_EQ(event.device, 0);
  ASSERT_EQ(cuMemsetD8_v2(managed, 0, kMiB), 0);
  EXPECT_TRUE(FakeRecorderGet().events.empty());
  EXPECT_EQ(cuMemFree_v2(managed), 0);
  EXPECT_EQ(cuMemFree_v2(plain), 0);
  FakeRecorderClear();
}

// cuMemFreeAsync gives nothing back; a later synchronization does, which is
// not seen.
TEST_F(GraphMemory, WhatAPoolHasGivenBackIsRecordedBeforeTheNextSample) {
  void* pointer = nullptr;
  ASSERT_EQ(cudaMallocAsync(&pointer, 48 * kMiB, nullptr), 0);
  const std::deque<DeviceEvent>& events = FakeRecorderGet().events;
  ASSERT_EQ(events.size(), 1u);
  const uint64_t pool = events[0].pool;
  EXPECT_EQ(events[0].offset, 48 * kMiB);
  FakeRecorderClear();
  ASSERT_EQ(cudaFreeAsync(pointer, nullptr), 0);
  size_t free_bytes = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total), 0);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, DeviceKind::kPoolFree);
  EXPECT_EQ(events[1].kind, DeviceKind::kPoolTrim);
  EXPECT_STREQ(events[1].api, "cuMemPoolGetAttribute");
  EXPECT_EQ(events[1].pool, pool);
  EXPECT_EQ(events[1].offset, 0u);
  // An empty pool is not asked again.
  ASSERT_EQ(cuMemAlloc_v2(reinterpret_cast<CUdeviceptr*>(&pointer), 48 * kMiB),
            0);
  ASSERT_EQ(cuMemFree_v2(Number(pointer)), 0);
  EXPECT_EQ(events.size(), 4u);
  FakeRecorderClear();
}

TEST_F(GraphMemory, TheProgramsOwnQuestionIsASampleIfItsAnswerIsNew) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, kMiB), 0);
  FakeRecorderClear();
  size_t free_bytes = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total), 0);
  ASSERT_EQ(FakeRecorderGet().samples.size(), 1u);
  EXPECT_EQ(FakeRecorderGet().samples[0].free_bytes, free_bytes);
  FakeRecorderGet().is_recording = false;
  ASSERT_EQ(cuMemFree_v2(address), 0);
  FakeRecorderClear();
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total), 0);
  EXPECT_TRUE(FakeRecorderGet().samples.empty());
  FakeRecorderGet().is_recording = true;
}

}  // namespace
}  // namespace dstrace::hooks::testing
