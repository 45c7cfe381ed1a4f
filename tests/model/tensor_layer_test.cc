// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/tensor_layer.h"

#include "gtest/gtest.h"

namespace dstrace::model {
namespace {

constexpr uint32_t kCuda0 = 0x100;

class TensorLayerTest : public ::testing::Test {
 protected:
  void Alloc(uint64_t address, uint64_t size, uint32_t thread = 1) {
    layer_.Alloc({.address = address,
                  .size = size,
                  .thread = thread,
                  .stack = 4,
                  .torch_device = kCuda0});
  }
  void Free(uint64_t address, uint32_t thread = 1) {
    layer_.Free({.address = address, .thread = thread, .torch_device = kCuda0});
  }
  void Record(uint64_t event, uint32_t thread = 1) {
    layer_.Apply(StreamEvent{
        .thread = thread, .kind = StreamEvent::Kind::kRecord, .event = event});
  }
  void Ready(uint64_t event, uint32_t thread = 1) {
    layer_.Apply(StreamEvent{
        .thread = thread, .kind = StreamEvent::Kind::kReady, .event = event});
  }

  TensorLayer layer_;
};

TEST_F(TensorLayerTest, DevicesAreTorchs) {
  EXPECT_EQ(DeviceOfTensor(0x100), 0);
  EXPECT_EQ(DeviceOfTensor(0x107), 7);
  EXPECT_EQ(DeviceOfTensor(0x000), kHostIndex);
  EXPECT_EQ(DeviceOfTensor(0x0ff), kHostIndex);
  EXPECT_EQ(DeviceOfTensor(0x1ff), 0);
}

TEST_F(TensorLayerTest, LiveBytesFollowAllocAndFree) {
  Alloc(0x1000, 512);
  Alloc(0x2000, 1024);
  EXPECT_EQ(layer_.live_bytes(0), 1536U);
  Free(0x1000);
  EXPECT_EQ(layer_.live_bytes(0), 1024U);
  Free(0x1000);
  EXPECT_EQ(layer_.live_bytes(0), 1024U);
  EXPECT_EQ(layer_.unmatched_frees(), 1U);
}

TEST_F(TensorLayerTest, AFreeAfterRecordedEventsIsPendingUntilAllAreReady) {
  Alloc(0x1000, 512);
  Record(0xa);
  Record(0xb);
  Free(0x1000);
  EXPECT_EQ(layer_.live_bytes(0), 0U);
  EXPECT_EQ(layer_.pending_bytes(0), 512U);
  Ready(0xb, 2);
  EXPECT_EQ(layer_.pending_bytes(0), 512U);
  Ready(0xa, 2);
  EXPECT_EQ(layer_.pending_bytes(0), 0U);
}

TEST_F(TensorLayerTest, AFreeWithoutEventsIsNotPending) {
  Alloc(0x1000, 512);
  Alloc(0x2000, 512);
  Record(0xa);
  Free(0x1000);
  Free(0x2000);
  EXPECT_EQ(layer_.pending_bytes(0), 512U);
}

TEST_F(TensorLayerTest, EventsOfAnotherThreadSayNothing) {
  Alloc(0x1000, 512);
  Record(0xa, 2);
  Free(0x1000, 1);
  EXPECT_EQ(layer_.pending_bytes(0), 0U);
}

TEST_F(TensorLayerTest, AnAllocationInBetweenEndsTheEvidence) {
  Alloc(0x1000, 512);
  Record(0xa);
  Alloc(0x2000, 512);
  Free(0x1000);
  EXPECT_EQ(layer_.pending_bytes(0), 0U);
}

TEST_F(TensorLayerTest, RecordingAnEventAgainMeansItWasReady) {
  Alloc(0x1000, 512);
  Alloc(0x2000, 1024);
  Record(0xa);
  Free(0x1000);
  Record(0xa);
  EXPECT_EQ(layer_.pending_bytes(0), 0U);
  Free(0x2000);
  EXPECT_EQ(layer_.pending_bytes(0), 1024U);
}

TEST_F(TensorLayerTest, MemoryGivenOutAgainIsNotPending) {
  Alloc(0x1000, 0x1000);
  Record(0xa);
  Free(0x1000);
  EXPECT_EQ(layer_.pending_bytes(0), 0x1000U);
  Alloc(0x1800, 0x100);  // a part of the block
  EXPECT_EQ(layer_.pending_bytes(0), 0U);
  Ready(0xa);
  EXPECT_EQ(layer_.pending_bytes(0), 0U);
}

TEST_F(TensorLayerTest, MemoryNextToAPendingBlockLeavesItPending) {
  Alloc(0x1000, 0x1000);
  Record(0xa);
  Free(0x1000);
  Alloc(0x2000, 0x100);
  Alloc(0xf00, 0x100);
  EXPECT_EQ(layer_.pending_bytes(0), 0x1000U);
}

}  // namespace
}  // namespace dstrace::model
