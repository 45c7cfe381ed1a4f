// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/build_run.h"

#include <numeric>
#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/vector_source.h"

namespace dstrace::model {
namespace {

using Built = Run;  // testing::Test has a Run of its own

using dstrace::testing::VectorSource;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr uint32_t kCuda0 = 0x100;
constexpr uint64_t kGiB = 1 << 30;
constexpr uint64_t kMiB = 1 << 20;

int64_t Sum(const Ledger& ledger) {
  uint64_t sum = ledger.torch_live + ledger.torch_cached;
  for (const auto& [owner, bytes] : ledger.libraries) sum += bytes;
  return static_cast<int64_t>(sum) + ledger.residual;
}

// By value: GCC 13 takes a reference for what may be returned.
const Snapshot& Named(const Device& device, std::string_view name) {
  for (const Snapshot& snapshot : device.snapshots) {
    if (snapshot.name == name) return snapshot;
  }
  ADD_FAILURE() << "no snapshot " << name;
  return device.snapshots.front();
}

class BuildRunTest : public ::testing::Test {
 protected:
  void Device(uint64_t time, uint64_t address, uint64_t size, StackId stack,
              int device = 0) {
    source_.Add(DeviceEvent{.time = time,
                            .kind = DeviceKind::kAlloc,
                            .stack = stack,
                            .device = device,
                            .address = address,
                            .size = size,
                            .api = "cuMemAlloc_v2"});
  }
  void Managed(uint64_t time, uint64_t address, uint64_t size, StackId stack) {
    source_.Add(DeviceEvent{.time = time,
                            .kind = DeviceKind::kManagedAlloc,
                            .stack = stack,
                            .device = 0,
                            .address = kGiB + address,
                            .size = size});
  }
  void Physical(uint64_t time, uint64_t handle, uint64_t size,
                bool shareable = true) {
    source_.Add(DeviceEvent{.time = time,
                            .kind = DeviceKind::kPhysicalCreate,
                            .stack = nccl_,
                            .device = 0,
                            .size = size,
                            .handle = handle,
                            .offset = shareable ? uint64_t{1} : 0});
  }
  void Release(uint64_t time, uint64_t handle) {
    source_.Add(DeviceEvent{
        .time = time, .kind = DeviceKind::kPhysicalRelease, .handle = handle});
  }
  void Touch(uint64_t time, uint64_t size) {
    source_.Add(DeviceEvent{.time = time,
                            .kind = DeviceKind::kModuleLoad,
                            .stack = tensor_,
                            .device = 0,
                            .size = size,
                            .api = "cuMemsetD8_v2"});
  }
  void DeviceFree(uint64_t time, uint64_t address) {
    source_.Add(DeviceEvent{
        .time = time, .kind = DeviceKind::kFree, .address = address});
  }
  void Tensor(uint64_t time, uint64_t address, uint64_t size, StackId stack,
              uint32_t device = kCuda0) {
    source_.Add(TensorAlloc{.time = time,
                            .address = address,
                            .size = size,
                            .thread = 1,
                            .stack = stack,
                            .torch_device = device});
  }
  void TensorGone(uint64_t time, uint64_t address, uint32_t device = kCuda0) {
    source_.Add(TensorFree{
        .time = time, .address = address, .thread = 1, .torch_device = device});
  }
  void Sample(uint64_t time, uint64_t used,
              SampleReason reason = SampleReason::kEvent, int device = 0) {
    source_.Add(MemorySample{.time = time,
                             .device = device,
                             .free_bytes = 80 * kGiB - used,
                             .total_bytes = 80 * kGiB,
                             .reason = reason});
  }
  void Context(uint64_t time) {
    source_.Add(DeviceEvent{.time = time,
                            .kind = DeviceKind::kContextCreate,
                            .device = 0,
                            .flags = 1});
  }
  void Totals(uint64_t time, uint64_t allocated, uint64_t reserved) {
    source_.Add(TorchTotals{.time = time,
                            .thread = 1,
                            .torch_device = kCuda0,
                            .allocated = allocated,
                            .reserved = reserved});
  }
  Built Build(const BuildOptions& options = {}) {
    auto run = BuildRun(source_, options);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? *std::move(run) : Built();
  }

  VectorSource source_;
  StackId torch_ = source_.Stack(
      {"/x/libcuda.so.1", "/x/libcudart.so.12", "/x/libc10_cuda.so"});
  StackId nccl_ = source_.Stack({"/x/libcuda.so.1", "/x/libnccl.so.2"});
  StackId tensor_ = source_.Stack({"/x/libtorch_cpu.so"});
};

TEST_F(BuildRunTest, TheLedgerAddsUpAndTorchIsNotCountedTwice) {
  Device(10, 0x1000000, 20 << 20, torch_);
  Tensor(20, 0x1000000, 5 << 20, tensor_);
  Device(30, 0x9000000, 8 << 20, nccl_);
  Sample(40, 500 << 20);

  const Built run = Build();

  ASSERT_EQ(run.devices.size(), 1U);
  const Ledger& ledger = Named(run.devices[0], "end").ledger;
  EXPECT_EQ(ledger.torch_live, 5U << 20);
  EXPECT_EQ(ledger.torch_reserved, 20U << 20);
  EXPECT_EQ(ledger.torch_cached, 15U << 20);
  EXPECT_THAT(ledger.libraries, ElementsAre(Pair("nccl", 8U << 20)));
  EXPECT_EQ(ledger.device_used, 500U << 20);
  EXPECT_TRUE(ledger.device_used_known);
  EXPECT_EQ(ledger.residual, 472 << 20);
  EXPECT_EQ(Sum(ledger), static_cast<int64_t>(ledger.device_used));
}

TEST_F(BuildRunTest, WithoutASampleTheResidualIsZero) {
  Device(10, 0x1000000, 20 << 20, torch_);
  Tensor(20, 0x1000000, 5 << 20, tensor_);

  const Built run = Build();
  const Ledger& ledger = Named(run.devices.at(0), "end").ledger;

  EXPECT_FALSE(ledger.device_used_known);
  EXPECT_EQ(ledger.device_used, 20U << 20);
  EXPECT_EQ(ledger.residual, 0);
}

TEST_F(BuildRunTest, ASampleIsBroughtToTheInstantByTheEventsSince) {
  Sample(10, 100);
  Device(20, 0x1000, 50, nccl_);
  Tensor(90, 0x2000, 1, tensor_);

  const Built run = Build();
  const Ledger& ledger = Named(run.devices.at(0), "end").ledger;

  EXPECT_EQ(ledger.device_used, 150U);
  EXPECT_EQ(ledger.sample_age_ns, 80U);
  EXPECT_EQ(ledger.residual, 99);
  EXPECT_EQ(Sum(ledger), 150);
}

TEST_F(BuildRunTest, BeforeTheFirstSampleThatSampleServes) {
  Device(10, 0x1000, 50, nccl_);
  Device(20, 0x2000, 30, nccl_);
  Sample(30, 1080);

  BuildOptions options;
  options.at = {.kind = At::Kind::kTime, .time_ns = 15};
  const Built run = Build(options);
  const Ledger& ledger = Named(run.devices.at(0), "1.5e-08s").ledger;

  EXPECT_EQ(ledger.device_used, 1050U);
  EXPECT_EQ(ledger.sample_age_ns, 15U);
  EXPECT_EQ(ledger.residual, 1000);
}

TEST_F(BuildRunTest, ThePeakIsTheFullestInstantWithMostLive) {
  Device(10, 0x1000, 100, torch_);
  Device(20, 0x2000, 100, torch_);  // device use is greatest from here
  Tensor(30, 0x1000, 60, tensor_);
  Tensor(40, 0x2000, 70, tensor_);  // and most of it is live here
  TensorGone(50, 0x1000);
  DeviceFree(60, 0x1000);

  const Built run = Build();

  EXPECT_EQ(run.devices.at(0).peak_time_ns, 40U);
  const Snapshot& peak = Named(run.devices[0], "peak");
  EXPECT_EQ(peak.time_ns, 40U);
  EXPECT_EQ(peak.ledger.torch_live, 130U);
  EXPECT_EQ(peak.ledger.torch_reserved, 200U);
}

TEST_F(BuildRunTest, WithoutADeviceLayerTorchLiveMakesThePeak) {
  Tensor(10, 0x1000, 100, tensor_, 0);
  Tensor(20, 0x2000, 100, tensor_, 0);
  TensorGone(30, 0x1000, 0);

  const Built run = Build();

  ASSERT_EQ(run.devices.size(), 1U);
  EXPECT_EQ(run.devices[0].index, kHostIndex);
  EXPECT_EQ(run.devices[0].peak_time_ns, 20U);
  EXPECT_EQ(Named(run.devices[0], "peak").ledger.torch_live, 200U);
  EXPECT_EQ(Named(run.devices[0], "peak").ledger.torch_cached, 0U);
}

TEST_F(BuildRunTest, HoldingsAreSummedByStackLargestFirst) {
  const StackId other = source_.Stack({"/x/libtorch_cpu.so"});
  Device(5, 0x100000, 4096, torch_);
  Tensor(10, 0x1000, 10, tensor_);
  Tensor(20, 0x2000, 20, tensor_);
  Tensor(30, 0x3000, 100, other);
  source_.Add(DeviceEvent{.time = 40,
                          .kind = DeviceKind::kHostAlloc,
                          .stack = torch_,
                          .device = kHostIndex,
                          .address = 0x9,
                          .size = 7});

  const Built run = Build();
  const std::vector<Holding>& holdings =
      Named(run.devices.at(0), "end").holdings;

  ASSERT_EQ(holdings.size(), 4U);
  EXPECT_EQ(holdings[0].layer, Layer::kDevice);
  EXPECT_EQ(holdings[0].owner, "torch");
  EXPECT_EQ(holdings[0].bytes, 4096U);
  EXPECT_EQ(holdings[1].stack, other);
  EXPECT_EQ(holdings[2].bytes, 30U);
  EXPECT_EQ(holdings[2].count, 2U);
  EXPECT_EQ(holdings[3].layer, Layer::kHostPinned);
  EXPECT_EQ(run.devices[0].snapshots[1].ledger.host_pinned, 7U);
}

TEST_F(BuildRunTest, DevicesAreAccountedApart) {
  Device(10, 0x1000, 100, torch_, 0);
  Device(20, 0x2000, 300, nccl_, 1);
  Sample(30, 900, SampleReason::kEvent, 1);

  const Built run = Build();

  ASSERT_EQ(run.devices.size(), 2U);
  EXPECT_EQ(Named(run.devices[0], "end").ledger.device_used, 100U);
  EXPECT_EQ(Named(run.devices[1], "end").ledger.device_used, 900U);
  EXPECT_EQ(Named(run.devices[1], "end").ledger.residual, 600);
  EXPECT_EQ(run.devices[1].peak_time_ns, 30U);
}

TEST_F(BuildRunTest, AContextCostsWhatTheSamplesAroundItDifferBy) {
  Sample(10, 300, SampleReason::kFirst);
  Context(20);
  Device(25, 0x1000, 50, nccl_);
  Sample(30, 850, SampleReason::kContext);

  const Built run = Build();
  const Ledger& ledger = Named(run.devices.at(0), "end").ledger;

  EXPECT_EQ(ledger.before_first_context, 300U);
  EXPECT_EQ(ledger.context, 500U);
  EXPECT_FALSE(ledger.context_includes_others);
}

// NCCL's peers map each other's buffers: the memory lives until the last one
// has let go of it.
TEST_F(BuildRunTest, ReleasedMemoryThatAPeerHasOpenIsNamedUntilItComesBack) {
  Sample(10, 500 * kMiB, SampleReason::kContext);
  Context(20);
  Physical(30, 1, 64 * kMiB);
  Physical(31, 2, 96 * kMiB);
  Sample(40, 663 * kMiB);  // 3 MiB of somebody else
  Release(50, 1);
  Release(51, 2);
  Sample(60, 567 * kMiB);  // one of them is still there
  Device(70, 0x900000000, 7 * kMiB, nccl_);
  BuildOptions options;
  options.at = {.kind = At::Kind::kTime, .time_ns = 75};
  Sample(80, 510 * kMiB);  // now it is gone

  const Built run = Build(options);

  const Ledger& during = Named(run.devices.at(0), "7.5e-08s").ledger;
  EXPECT_EQ(during.held_elsewhere, 64 * kMiB);
  EXPECT_EQ(Unexplained(during), 3 * int64_t{kMiB});
  EXPECT_EQ(during.device_used, 574 * kMiB);
  EXPECT_EQ(Sum(during), static_cast<int64_t>(during.device_used));
  const Ledger& end = Named(run.devices.at(0), "end").ledger;
  EXPECT_EQ(end.held_elsewhere, 0U);
  EXPECT_EQ(Unexplained(end), 3 * int64_t{kMiB});
}

TEST_F(BuildRunTest, WhatCameBackOnceOrCannotBeSharedIsNotOpenElsewhere) {
  Sample(10, 500 * kMiB, SampleReason::kContext);
  Context(20);
  Physical(30, 1, 64 * kMiB);
  Physical(31, 2, 96 * kMiB, /*shareable=*/false);
  Release(40, 1);
  Sample(50, 596 * kMiB);  // it came back
  Release(60, 2);
  Sample(70, 580 * kMiB);  // 80 MiB of somebody else

  const Built run = Build();
  const Ledger& end = Named(run.devices.at(0), "end").ledger;

  EXPECT_EQ(end.held_elsewhere, 0U);
  EXPECT_EQ(Unexplained(end), 80 * int64_t{kMiB});
}

TEST_F(BuildRunTest,
       ManagedMemoryOnTheDeviceIsDeducedFromWhatASampleCannotExplain) {
  Sample(10, 500 * kMiB, SampleReason::kContext);
  Context(20);
  Managed(30, 16 * kMiB, 17 * kMiB, nccl_);
  Sample(40, 500 * kMiB);  // nothing has touched it
  BuildOptions options;
  options.at = {.kind = At::Kind::kTime, .time_ns = 45};
  Device(50, 0x900000000, 7 * kMiB, nccl_);
  Sample(60, 519 * kMiB);  // 12 MiB that no call tells of
  Device(70, 0x910000000, 5 * kMiB, nccl_);

  const Built run = Build(options);

  const Snapshot& before = Named(run.devices.at(0), "4.5e-08s");
  EXPECT_EQ(before.ledger.managed_on_device, 0U);
  const Snapshot& end = Named(run.devices.at(0), "end");
  EXPECT_EQ(end.ledger.context, 500 * kMiB);
  EXPECT_EQ(end.ledger.managed_on_device, 12 * kMiB);
  EXPECT_EQ(end.ledger.managed_extent, 18 * kMiB);
  EXPECT_EQ(end.ledger.device_used, 524 * kMiB);
  EXPECT_EQ(Unexplained(end.ledger), 0);
  EXPECT_EQ(Sum(end.ledger), static_cast<int64_t>(end.ledger.device_used));
  uint64_t held = 0;
  for (const Holding& holding : end.holdings) {
    if (holding.layer != Layer::kManagedOnDevice) continue;
    held += holding.bytes;
    EXPECT_EQ(holding.stack, nccl_);
    EXPECT_EQ(holding.owner, "nccl");
  }
  EXPECT_EQ(held, 12 * kMiB);
}

TEST_F(BuildRunTest, ManagedMemoryExplainsNoMoreThanItsSizeAndNothingOlder) {
  Sample(10, 500 * kMiB, SampleReason::kContext);
  Context(20);
  Sample(25, 509 * kMiB);  // 9 MiB of somebody else
  Managed(30, 0, 3 * kMiB, nccl_);
  Sample(40, 509 * kMiB + 100 * kMiB);

  const Built run = Build();
  const Ledger& ledger = Named(run.devices.at(0), "end").ledger;

  EXPECT_EQ(ledger.managed_on_device, 4 * kMiB);  // in blocks of 2 MiB
  EXPECT_EQ(Unexplained(ledger), 105 * int64_t{kMiB});
}

TEST_F(BuildRunTest, ManagedMemoryLeavesTheDeviceWithItsAllocation) {
  Sample(10, 500 * kMiB, SampleReason::kContext);
  Context(20);
  Managed(30, 16 * kMiB, 16 * kMiB, nccl_);
  Managed(31, 64 * kMiB, 4 * kMiB, tensor_);
  Sample(40, 520 * kMiB);
  DeviceFree(50, kGiB + 16 * kMiB);
  BuildOptions options;
  options.at = {.kind = At::Kind::kTime, .time_ns = 55};
  DeviceFree(60, kGiB + 64 * kMiB);
  Tensor(70, 0x2000, 1, tensor_);

  const Built run = Build(options);

  const Ledger& one = Named(run.devices.at(0), "5.5e-08s").ledger;
  EXPECT_EQ(one.managed_on_device, 4 * kMiB);
  EXPECT_EQ(one.device_used, 504 * kMiB);
  const Ledger& end = Named(run.devices.at(0), "end").ledger;
  EXPECT_EQ(end.managed_on_device, 0U);
  EXPECT_EQ(end.device_used, 500 * kMiB);
}

// As recorded on CUDA 13: the first memset of 1 MiB took 128 MiB, 66 of them
// the pages of all managed memory, which its end gave back.
TEST_F(BuildRunTest, TheFirstTouchOfManagedMemoryIsNotAllCudasOwn) {
  Sample(10, 620 * kMiB, SampleReason::kContext);
  Context(20);
  Managed(30, 0, 1 * kMiB, nccl_);
  Managed(31, 2 * kMiB, 16 * kMiB, nccl_);
  Managed(32, 32 * kMiB, 48 * kMiB, nccl_);
  Sample(35, 620 * kMiB);
  Touch(40, 128 * kMiB);
  Sample(41, 748 * kMiB);
  BuildOptions options;
  options.at = {.kind = At::Kind::kTime, .time_ns = 45};
  DeviceFree(50, kGiB);
  DeviceFree(51, kGiB + 2 * kMiB);
  DeviceFree(52, kGiB + 32 * kMiB);
  Sample(60, 682 * kMiB);

  const Built run = Build(options);

  const Ledger& touched = Named(run.devices.at(0), "4.5e-08s").ledger;
  EXPECT_EQ(touched.managed_on_device, 66 * kMiB);
  EXPECT_EQ(touched.code, 62 * kMiB);
  EXPECT_EQ(Unexplained(touched), 0);
  const Ledger& end = Named(run.devices.at(0), "end").ledger;
  EXPECT_EQ(end.managed_on_device, 0U);
  EXPECT_EQ(end.code, 62 * kMiB);
  EXPECT_EQ(end.device_used, 682 * kMiB);
  EXPECT_EQ(Unexplained(end), 0);
}

// Of much managed memory the touch may bring little; that shows at its end.
TEST_F(BuildRunTest, WhatOutlivesManagedMemoryWasCudasOwn) {
  Sample(10, 500 * kMiB, SampleReason::kContext);
  Context(20);
  Managed(30, 0, kGiB, nccl_);
  Sample(35, 500 * kMiB);
  Touch(40, 64 * kMiB);
  Sample(41, 564 * kMiB);
  BuildOptions options;
  options.at = {.kind = At::Kind::kTime, .time_ns = 45};
  DeviceFree(50, kGiB);
  Sample(60, 562 * kMiB);
  Sample(70, 570 * kMiB);  // 8 MiB of somebody else

  const Built run = Build(options);

  const Ledger& touched = Named(run.devices.at(0), "4.5e-08s").ledger;
  EXPECT_EQ(touched.managed_on_device, 64 * kMiB);
  EXPECT_EQ(touched.code, 0U);
  const Ledger& end = Named(run.devices.at(0), "end").ledger;
  EXPECT_EQ(end.code, 62 * kMiB);
  EXPECT_EQ(Unexplained(end), 8 * int64_t{kMiB});
}

TEST_F(BuildRunTest, TheEventOfAContextMayFollowItsSamples) {
  Sample(10, 850, SampleReason::kContext);
  Context(20);
  Sample(30, 900, SampleReason::kContext);  // before the second
  Sample(40, 1000, SampleReason::kContext);
  Context(50);

  const Built run = Build();
  const Ledger& ledger = Named(run.devices.at(0), "end").ledger;

  EXPECT_EQ(ledger.context, 950U);
  EXPECT_TRUE(ledger.context_includes_others);
}

TEST_F(BuildRunTest, WithoutASampleBeforeTheContextOthersAreInIt) {
  Context(20);
  Sample(30, 850, SampleReason::kContext);
  Context(40);
  Sample(50, 1000, SampleReason::kContext);

  const Built run = Build();
  const Ledger& ledger = Named(run.devices.at(0), "end").ledger;

  EXPECT_EQ(ledger.context, 1000U);
  EXPECT_TRUE(ledger.context_includes_others);
}

TEST_F(BuildRunTest, TorchsTotalsAreComparedBeforeOrAfterTheirEvent) {
  Tensor(10, 0x1000, 100, tensor_);
  Totals(10, 100, 0);  // after its event
  Totals(20, 150, 0);  // before its event
  Tensor(20, 0x2000, 50, tensor_);
  Totals(30, 157, 0);  // never true
  Tensor(40, 0x3000, 50, tensor_);
  Totals(50, 197, 0);  // never true, at the end

  const TorchCheck check = Build().devices.at(0).torch_check;

  EXPECT_EQ(check.reports, 4U);
  EXPECT_EQ(check.mismatches, 2U);
  EXPECT_EQ(check.largest_error, 7U);
  EXPECT_EQ(check.reserved_reports, 0U);
}

TEST_F(BuildRunTest, TorchsReservedIsComparedWithItsSegments) {
  Device(10, 0x1000, 100, torch_);
  Totals(20, 0, 100);
  Device(30, 0x2000, 100, nccl_);
  Totals(40, 0, 140);

  const TorchCheck check = Build().devices.at(0).torch_check;

  EXPECT_EQ(check.reserved_reports, 2U);
  EXPECT_EQ(check.reserved_mismatches, 1U);
  EXPECT_EQ(check.largest_reserved_error, 40U);
}

TEST_F(BuildRunTest, WithoutNativeStacksTorchsOwnTotalNamesItsSegments) {
  Device(10, 0x1000, 100, 0);
  Device(20, 0x2000, 70, 0);
  Totals(30, 0, 100);
  Sample(40, 1000);

  const Built run = Build();
  const Ledger& ledger = Named(run.devices.at(0), "end").ledger;

  EXPECT_EQ(ledger.torch_reserved, 100U);
  EXPECT_THAT(ledger.libraries, ElementsAre(Pair("unknown", 70U)));
  EXPECT_EQ(Sum(ledger), 1000);
}

TEST_F(BuildRunTest, StreamPendingBytesArePartOfCachedByStack) {
  Device(10, 0x1000, 1000, torch_);
  Tensor(20, 0x1000, 400, tensor_);
  source_.Add(StreamEvent{.time = 30, .thread = 1, .event = 0xa});
  TensorGone(31, 0x1000);

  const Built run = Build();
  const Snapshot& end = Named(run.devices.at(0), "end");

  EXPECT_EQ(end.ledger.torch_cached, 1000U);
  EXPECT_EQ(end.ledger.torch_stream_pending, 400U);
  ASSERT_EQ(end.stream_pending.size(), 1U);
  EXPECT_EQ(end.stream_pending[0].stack, tensor_);
  EXPECT_EQ(end.stream_pending[0].bytes, 400U);
}

TEST_F(BuildRunTest, GrowthTellsWhoMadeTheDeviceLayerGrow) {
  Device(10, 0x1000, 100, nccl_);
  Device(20, 0x2000, 50, torch_);
  DeviceFree(30, 0x2000);
  Device(40, 0x3000, 30, torch_);

  const Built run = Build();
  const std::vector<Growth>& growth = run.devices.at(0).growth;

  ASSERT_EQ(growth.size(), 2U);
  EXPECT_EQ(growth[0].owner, "nccl");
  EXPECT_EQ(growth[1].owner, "torch");
  EXPECT_EQ(growth[1].bytes, 80U);
  EXPECT_EQ(growth[1].count, 2U);
  EXPECT_EQ(growth[1].live_at_peak, 50U);
  EXPECT_EQ(growth[1].live_at_end, 30U);
}

TEST_F(BuildRunTest, FailuresSayWhatTorchHeldThen) {
  Device(10, 0x1000, 100, torch_);
  Tensor(20, 0x1000, 60, tensor_);
  source_.Add(DeviceEvent{.time = 30,
                          .kind = DeviceKind::kAlloc,
                          .stack = torch_,
                          .device = 0,
                          .size = 5000,
                          .result = 2,
                          .free_bytes = 4000,
                          .total_bytes = 9000,
                          .api = "cuMemAlloc_v2"});
  source_.Add(OutOfMemory{.time = 40,
                          .torch_device = kCuda0,
                          .size = 4999,
                          .allocated = 60,
                          .reserved = 100,
                          .stack = tensor_});
  source_.Add(DeviceEvent{
      .time = 50, .kind = DeviceKind::kFree, .address = 3, .result = 1});

  const Built run = Build();

  ASSERT_EQ(run.failures.size(), 2U);
  EXPECT_EQ(run.failures[0].api, "cuMemAlloc_v2");
  EXPECT_EQ(run.failures[0].result, 2);
  EXPECT_EQ(run.failures[0].free_bytes, 4000U);
  EXPECT_EQ(run.failures[0].torch_live, 60U);
  EXPECT_EQ(run.failures[0].torch_reserved, 100U);
  EXPECT_EQ(run.failures[1].api, "torch");
  EXPECT_EQ(run.failures[1].size, 4999U);
  EXPECT_EQ(run.failures[1].stack, tensor_);
}

TEST_F(BuildRunTest, AMarkNamesAnInstant) {
  Tensor(10, 0x1000, 1, tensor_);
  source_.Add(Mark{.time = 20, .kind = 1, .name = "step"});
  Tensor(30, 0x2000, 2, tensor_);
  source_.Add(Mark{.time = 40, .kind = 2, .name = "step"});

  BuildOptions options;
  options.at = {.kind = At::Kind::kMark, .mark = "step"};
  const Built run = Build(options);

  const Snapshot& snapshot = Named(run.devices.at(0), "mark:step");
  EXPECT_EQ(snapshot.time_ns, 20U);
  EXPECT_EQ(snapshot.ledger.torch_live, 1U);
  EXPECT_EQ(run.marks.size(), 2U);
}

TEST_F(BuildRunTest, AMarkThatIsNotThereIsAnErrorThatListsTheOthers) {
  source_.Add(Mark{.time = 20, .name = "step"});
  BuildOptions options;
  options.at = {.kind = At::Kind::kMark, .mark = "stpe"};

  const auto run = BuildRun(source_, options);

  EXPECT_EQ(run.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(run.status().message()),
              AllOf(HasSubstr("\"stpe\""), HasSubstr("it has: step")));
}

TEST_F(BuildRunTest, ATimeAfterTheEndIsAnError) {
  Tensor(10, 0x1000, 1, tensor_);
  BuildOptions options;
  options.at = {.kind = At::Kind::kTime, .time_ns = 2'500'000'000};

  const auto run = BuildRun(source_, options);

  EXPECT_EQ(run.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("2.5s"));
}

TEST_F(BuildRunTest, ATimeTakesEverythingUpToIt) {
  Tensor(10, 0x1000, 1, tensor_);
  Tensor(20, 0x2000, 2, tensor_);
  Tensor(20, 0x3000, 4, tensor_);
  Tensor(30, 0x4000, 8, tensor_);
  BuildOptions options;
  options.at = {.kind = At::Kind::kTime, .time_ns = 20};

  const Built run = Build(options);

  ASSERT_EQ(run.devices.at(0).snapshots.size(), 3U);
  EXPECT_EQ(run.devices[0].snapshots[2].ledger.torch_live, 7U);
}

TEST_F(BuildRunTest, ATraceWithoutEventsIsARunWithoutDevices) {
  const Built run = Build();

  EXPECT_EQ(run.event_count, 0U);
  EXPECT_TRUE(run.devices.empty());
}

TEST_F(BuildRunTest, TheTimelineHasTheMaximaOfEachBucket) {
  Tensor(0, 0x1000, 10, tensor_);
  Tensor(11, 0x2000, 90, tensor_);
  TensorGone(12, 0x2000);
  TensorGone(39, 0x1000);
  BuildOptions options;
  options.timeline_points = 4;  // buckets of ten nanoseconds

  const Built run = Build(options);
  std::vector<uint64_t> live;
  for (const TimelinePoint& point : run.devices.at(0).timeline) {
    live.push_back(point.torch_live);
  }

  EXPECT_THAT(live, ElementsAre(10, 100, 10, 10));
  EXPECT_EQ(run.devices[0].timeline[3].time_ns, 30U);
}

TEST_F(BuildRunTest, TheTimelineIsNeverLongerThanAskedFor) {
  for (uint64_t i = 0; i < 1000; ++i) {
    Tensor(i * 1'000'003, 0x1000 * (i + 1), 1, tensor_);
  }
  for (const size_t points : {1, 2, 7, 100}) {
    VectorSource copy = source_;
    BuildOptions options;
    options.timeline_points = points;
    const auto run = BuildRun(copy, options);
    ASSERT_TRUE(run.ok());
    EXPECT_EQ(run->devices.at(0).timeline.size(), points);
    EXPECT_EQ(run->devices[0].timeline.back().torch_live, 1000U);
  }
}

}  // namespace
}  // namespace dstrace::model
