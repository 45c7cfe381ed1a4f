// SPDX-License-Identifier: Apache-2.0
//
// torch's allocator over the fakes: what it reports, and the CUDA events that
// tell pending memory from reusable memory.
#include <gtest/gtest.h>

#include <cerrno>

#include "preload/hooks/cuda_abi.h"
#include "tests/fakes/fake_torch.h"
#include "tests/hooks/fake_recorder.h"

namespace dstrace::hooks {
namespace {

using capture::StreamEventKind;
using capture::TorchDevice;

extern "C" {
uint64_t FakeC10ReportCount();
void FakeCudartCompleteEvents(int complete);
int cudaEventRecord(cudaEvent_t event, CUstream stream);
int cudaEventQuery(cudaEvent_t event);

// NOLINTBEGIN(bugprone-reserved-identifier)
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void* block,
                                                           int64_t size,
                                                           size_t allocated,
                                                           size_t reserved,
                                                           TorchDevice device);
void _ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE(void* block,
                                                           int64_t size,
                                                           int64_t allocated,
                                                           int64_t reserved,
                                                           TorchDevice device);
void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t size,
                                                         size_t allocated,
                                                         size_t reserved,
                                                         TorchDevice device);
void _ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE(int64_t size,
                                                         int64_t allocated,
                                                         int64_t reserved,
                                                         TorchDevice device);
// NOLINTEND(bugprone-reserved-identifier)
}

class Torch : public ::testing::Test {
 protected:
  void SetUp() override {
    // The first report is where the hooks learn who torch's allocator is.
    fake_torch_free(fake_torch_malloc(512));
    FakeCudartCompleteEvents(1);
    FakeRecorderClear();
  }
};

TEST_F(Torch, ReportsEachTensorWithTorchsTotalsAndPassesThemOn) {
  const uint64_t passed_on = FakeC10ReportCount();

  void* block = fake_torch_malloc(1000);
  fake_torch_free(block);

  EXPECT_EQ(FakeC10ReportCount(), passed_on + 2);
  ASSERT_EQ(FakeRecorderGet().tensors.size(), 2u);
  const fakes::Tensor alloc = FakeRecorderGet().tensors[0];
  const fakes::Tensor free = FakeRecorderGet().tensors[1];
  EXPECT_EQ(alloc.address, reinterpret_cast<uint64_t>(block));
  EXPECT_EQ(alloc.size, 1024);
  EXPECT_EQ(alloc.device.type, 1);
  EXPECT_EQ(alloc.allocated, free.allocated + 1024);
  EXPECT_EQ(free.size, -1024);
  EXPECT_EQ(free.reserved, fake_torch_memory_reserved());
}

TEST_F(Torch, SegmentsAreDeviceEventsLabelledCudaMalloc) {
  fake_torch_empty_cache();
  FakeRecorderClear();
  void* block = fake_torch_malloc(size_t{30} << 20);
  ASSERT_EQ(FakeRecorderGet().events.size(), 1u);
  const capture::DeviceEvent event = FakeRecorderGet().events[0];
  EXPECT_STREQ(event.api, "cuMemAlloc_v2");
  EXPECT_STREQ(event.label, "cudaMalloc");
  EXPECT_EQ(event.size, size_t{30} << 20);
  fake_torch_free(block);
  fake_torch_empty_cache();
  EXPECT_EQ(FakeRecorderGet().events.back().kind, capture::DeviceKind::kFree);
}

TEST_F(Torch, OutOfMemoryIsReportedByBothLayers) {
  EXPECT_EQ(fake_torch_malloc(size_t{1} << 40), nullptr);
  ASSERT_EQ(FakeRecorderGet().out_of_memory.size(), 1u);
  EXPECT_EQ(FakeRecorderGet().out_of_memory[0].size, size_t{1} << 40);
  ASSERT_EQ(FakeRecorderGet().events.size(), 1u);
  const capture::DeviceEvent event = FakeRecorderGet().events[0];
  EXPECT_EQ(event.result, 2);
  EXPECT_EQ(event.size, size_t{1} << 40);
  ASSERT_FALSE(FakeRecorderGet().samples.empty());
  const fakes::Sample sample = FakeRecorderGet().samples.back();
  EXPECT_EQ(sample.reason, capture::SampleReason::kOom);
  EXPECT_EQ(sample.free_bytes, event.free_bytes);
}

TEST_F(Torch, EventsOfAFreeSayWhenItsBytesAreReusable) {
  const auto stream = reinterpret_cast<void*>(0x77);
  void* block = fake_torch_malloc(4096);
  fake_torch_record_stream(block, stream);
  FakeCudartCompleteEvents(0);

  fake_torch_free(block);
  ASSERT_EQ(FakeRecorderGet().stream_events.size(), 1u);
  const fakes::StreamEvent record = FakeRecorderGet().stream_events[0];
  EXPECT_EQ(record.kind, StreamEventKind::kRecord);
  EXPECT_EQ(record.stream, 0x77u);

  fake_torch_free(fake_torch_malloc(512));  // polls: not done yet
  EXPECT_EQ(FakeRecorderGet().stream_events.size(), 1u);
  FakeCudartCompleteEvents(1);
  fake_torch_free(fake_torch_malloc(512));
  ASSERT_EQ(FakeRecorderGet().stream_events.size(), 2u);
  const fakes::StreamEvent ready = FakeRecorderGet().stream_events[1];
  EXPECT_EQ(ready.kind, StreamEventKind::kReady);
  EXPECT_EQ(ready.event, record.event);
}

TEST_F(Torch, EventsOfOthersAreNotLookedAt) {
  EXPECT_EQ(cudaEventRecord(reinterpret_cast<cudaEvent_t>(0x99), nullptr), 0);
  EXPECT_EQ(cudaEventQuery(reinterpret_cast<cudaEvent_t>(0x99)), 0);
  EXPECT_TRUE(FakeRecorderGet().stream_events.empty());
}

TEST_F(Torch, BothManglingsAreHooked) {
  const uint64_t passed_on = FakeC10ReportCount();
  int block = 0;
  const TorchDevice cuda = {1, 3};
  _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(&block, 1, 2, 3, cuda);
  _ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE(&block, 1, 2, 3, cuda);
  _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(4, 5, 6, cuda);
  _ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE(4, 5, 6, cuda);
  EXPECT_EQ(FakeC10ReportCount(), passed_on + 4);
  ASSERT_EQ(FakeRecorderGet().tensors.size(), 2u);
  for (const fakes::Tensor& tensor : FakeRecorderGet().tensors) {
    EXPECT_EQ(tensor.address, reinterpret_cast<uint64_t>(&block));
    EXPECT_EQ(tensor.size, 1);
    EXPECT_EQ(tensor.allocated, 2u);
    EXPECT_EQ(tensor.reserved, 3u);
    EXPECT_EQ(tensor.device.index, 3);
  }
  ASSERT_EQ(FakeRecorderGet().out_of_memory.size(), 2u);
  EXPECT_EQ(FakeRecorderGet().out_of_memory[1].reserved, 6u);
}

TEST_F(Torch, LeavesErrnoAlone) {
  errno = ENOTTY;
  fake_torch_free(fake_torch_malloc(512));
  EXPECT_EQ(errno, ENOTTY);
}

}  // namespace
}  // namespace dstrace::hooks
