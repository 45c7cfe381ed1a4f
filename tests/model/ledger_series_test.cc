// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/ledger_series.h"

#include "gtest/gtest.h"
#include "tests/support/vector_source.h"

namespace dstrace::model {
namespace {

using dstrace::testing::VectorSource;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kTotal = 1000 * kMiB;

class LedgerSeriesTest : public ::testing::Test {
 protected:
  void Tensor(uint64_t time, uint64_t address, uint64_t size) {
    source_.Add(TensorAlloc{.time = time,
                            .address = address,
                            .size = size,
                            .thread = 1,
                            .stack = torch_,
                            .torch_device = 0x100});
  }
  void Device(uint64_t time, DeviceKind kind, uint64_t size,
              uint64_t reserved = 0, uint64_t pool = 0) {
    source_.Add(DeviceEvent{.time = time,
                            .kind = kind,
                            .stack = torch_,
                            .device = 0,
                            .address = time << 30,
                            .size = size,
                            .pool = pool,
                            .offset = reserved});
  }
  void Sample(uint64_t time, uint64_t used,
              SampleReason reason = SampleReason::kEvent) {
    source_.Add(MemorySample{.time = time,
                             .device = 0,
                             .free_bytes = kTotal - used,
                             .total_bytes = kTotal,
                             .reason = reason});
  }
  std::vector<LedgerPoint> Series(std::vector<uint64_t> times = {}) {
    auto series = LedgerSeries(source_, std::move(times));
    EXPECT_TRUE(series.ok()) << series.status();
    return series.ok() ? *std::move(series) : std::vector<LedgerPoint>();
  }

  VectorSource source_;
  StackId torch_ = source_.Stack({"/x/libcuda.so.1", "/x/libc10_cuda.so"});
};

TEST_F(LedgerSeriesTest, AnInstantHoldsAfterTheEventsOfItsOwnTime) {
  Device(10, DeviceKind::kAlloc, 20 * kMiB);
  Tensor(20, 0x1000, 1);
  Tensor(20, 0x2000, 2);
  Tensor(21, 0x3000, 4);

  const auto points = Series({1000, 20, 5, 19});

  ASSERT_EQ(points.size(), 3U);  // at 5 the device was not known yet
  EXPECT_EQ(points[0].time_ns, 19U);
  EXPECT_EQ(points[0].ledger.torch_live, 0U);
  EXPECT_EQ(points[0].ledger.torch_reserved, 20 * kMiB);
  EXPECT_EQ(points[1].ledger.torch_live, 3U);
  EXPECT_EQ(points[2].time_ns, 1000U);
  EXPECT_EQ(points[2].ledger.torch_live, 7U);
}

TEST_F(LedgerSeriesTest, WithoutTimesEverySampleIsAnInstant) {
  Sample(10, 100 * kMiB);
  Device(20, DeviceKind::kAlloc, 20 * kMiB);
  Sample(30, 121 * kMiB);

  const auto points = Series();

  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].ledger.residual, 100 << 20);
  EXPECT_EQ(points[1].ledger.residual, 101 << 20);
}

TEST_F(LedgerSeriesTest, MeasuredCodeIsNamedAndTheRestStaysUnexplained) {
  Sample(10, 50 * kMiB, SampleReason::kContext);   // others
  Sample(11, 550 * kMiB, SampleReason::kContext);  // and the context
  source_.Add(DeviceEvent{
      .time = 12, .kind = DeviceKind::kContextCreate, .device = 0, .flags = 1});
  Device(20, DeviceKind::kModuleLoad, 92 * kMiB);
  Sample(21, 642 * kMiB, SampleReason::kModule);
  Sample(30, 649 * kMiB);  // another process came

  const auto points = Series();

  ASSERT_EQ(points.size(), 4U);
  const Ledger& code = points[2].ledger;
  EXPECT_EQ(code.before_first_context, 50 * kMiB);
  EXPECT_EQ(code.context, 500 * kMiB);
  EXPECT_FALSE(code.context_includes_others);
  EXPECT_EQ(code.code, 92 * kMiB);
  EXPECT_EQ(Unexplained(code), 0);
  EXPECT_EQ(Unexplained(points[3].ledger), 7 << 20);
}

TEST_F(LedgerSeriesTest, APoolStandsForTensorsThatTorchDoesNotReport) {
  Device(10, DeviceKind::kPoolAlloc, 4, 32 * kMiB, 0x77);
  Device(20, DeviceKind::kPoolAlloc, 512, 32 * kMiB, 0x77);

  const auto points = Series({20});

  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points[0].ledger.torch_live, 516U);
  EXPECT_EQ(points[0].ledger.torch_reserved, 32 * kMiB);
}

}  // namespace
}  // namespace dstrace::model
