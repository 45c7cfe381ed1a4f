// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/cupti_check.h"

#include <vector>

#include "analyzer/model/build_run.h"
#include "gtest/gtest.h"
#include "tests/support/vector_source.h"

namespace dstrace::model {
namespace {

using dstrace::testing::VectorSource;

DeviceEvent Made(uint64_t time, DeviceKind kind, uint64_t size,
                 int result = 0) {
  return {.time = time,
          .kind = kind,
          .address = time,
          .size = size,
          .result = result};
}

CuptiTotals Totals(uint64_t time) { return {.time = time, .version = 130001}; }

TEST(CuptiCounter, NothingRanWithoutTotals) {
  CuptiCounter counter;
  counter.Add(Made(1, DeviceKind::kAlloc, 10));
  EXPECT_FALSE(counter.check().ran);
  EXPECT_EQ(counter.check().hooks.device.count, 0U);
}

TEST(CuptiCounter, CountsBetweenTheFirstTotalsAndTheLast) {
  CuptiCounter counter;
  counter.Add(Made(1, DeviceKind::kAlloc, 10));  // before CUPTI
  counter.Add(Totals(2));
  counter.Add(Made(3, DeviceKind::kAlloc, 20));
  counter.Add(Made(4, DeviceKind::kPoolAlloc, 30));
  CuptiTotals last = Totals(5);
  last.kinds[3] = {2, 50, 1, 20};
  counter.Add(last);
  counter.Add(Made(6, DeviceKind::kAlloc, 40));  // after its last word

  EXPECT_EQ(counter.check().cupti.device, (CuptiCheck::Sum{2, 50}));
  EXPECT_EQ(counter.check().hooks.device, (CuptiCheck::Sum{2, 50}));
}

TEST(CuptiCounter, EachKindOfMemoryHasItsSum) {
  CuptiCounter counter;
  counter.Add(Totals(1));
  counter.Add(Made(2, DeviceKind::kManagedAlloc, 1));
  counter.Add(Made(3, DeviceKind::kHostAlloc, 2));
  counter.Add(Made(4, DeviceKind::kArrayCreate, 3));
  counter.Add(Made(5, DeviceKind::kPhysicalCreate, 4));
  counter.Add(Made(6, DeviceKind::kFree, 0));
  counter.Add(Made(7, DeviceKind::kAlloc, 99, /*result=*/2));  // failed
  CuptiTotals last = Totals(8);
  last.kinds[5] = {1, 1, 0, 0};
  last.kinds[2] = {1, 2, 0, 0};
  last.kinds[4] = {1, 3, 0, 0};
  counter.Add(last);

  const CuptiCheck& check = counter.check();
  EXPECT_EQ(check.hooks.managed, check.cupti.managed);
  EXPECT_EQ(check.hooks.pinned, check.cupti.pinned);
  EXPECT_EQ(check.hooks.array, check.cupti.array);
  EXPECT_EQ(check.hooks.physical, (CuptiCheck::Sum{1, 4}));
  EXPECT_EQ(check.hooks.device.count, 0U);
}

// As CUPTI does, so that like is compared with like.
TEST(CuptiCounter, RegisteredHostMemoryCountsAsPinned) {
  CuptiCounter counter;
  counter.Add(Totals(1));
  counter.Add(Made(2, DeviceKind::kHostAlloc, 2));
  counter.Add(Made(3, DeviceKind::kHostRegister, 16));
  counter.Add(Made(4, DeviceKind::kHostUnregister, 0));
  counter.Add(Totals(5));

  EXPECT_EQ(counter.check().hooks.pinned, (CuptiCheck::Sum{2, 18}));
}

DeviceEvent OfHandle(DeviceKind kind, uint64_t handle, uint64_t size,
                     int device = 0) {
  return {.kind = kind, .device = device, .size = size, .handle = handle};
}

// The hooks' side of a run, with what CUPTI says of device memory.
CuptiCheck CheckOf(const std::vector<DeviceEvent>& events, uint64_t count,
                   uint64_t bytes) {
  CuptiCounter counter;
  counter.Add(Totals(1));
  for (const DeviceEvent& event : events) counter.Add(event);
  CuptiTotals last = Totals(9);
  last.kinds[3] = {count, bytes, 0, 0};
  counter.Add(last);
  return counter.check();
}

TEST(CuptiCounter, MappingsOfDeviceMemoryOfOursCountAsAllocations) {
  const std::vector<DeviceEvent> events = {
      Made(2, DeviceKind::kAlloc, 5),
      OfHandle(DeviceKind::kPhysicalCreate, 1, 10),
      OfHandle(DeviceKind::kMap, 1, 10, kUnknownIndex),
      OfHandle(DeviceKind::kPhysicalCreate, 2, 20, kHostIndex),
      OfHandle(DeviceKind::kMap, 2, 20, kUnknownIndex),
      {.kind = DeviceKind::kPhysicalRetain, .handle = 3, .flags = 1},
      OfHandle(DeviceKind::kMap, 3, 40, kUnknownIndex),
      // The same number, of other memory.
      OfHandle(DeviceKind::kPhysicalCreate, 2, 80),
      OfHandle(DeviceKind::kMap, 2, 80, kUnknownIndex)};

  const CuptiCheck check = CheckOf(events, 3, 95);
  EXPECT_EQ(check.hooks.mapped, (CuptiCheck::Sum{2, 90}));
  EXPECT_EQ(HooksOnDevice(check), (CuptiCheck::Sum{3, 95}));
  EXPECT_TRUE(DeviceMemoryAgrees(check));
  EXPECT_EQ(check.unreported.count, 0U);
}

TEST(CuptiCounter, FewerMappingsAreNotedOnlyIfTheirSizesFit) {
  const std::vector<DeviceEvent> events = {
      Made(2, DeviceKind::kAlloc, 5), OfHandle(DeviceKind::kMap, 1, 10),
      OfHandle(DeviceKind::kMap, 2, 20), OfHandle(DeviceKind::kMap, 3, 40)};

  const CuptiCheck one = CheckOf(events, 3, 35);  // without that of 40
  EXPECT_EQ(one.unreported, (CuptiCheck::Sum{1, 40}));
  EXPECT_TRUE(DeviceMemoryAgrees(one));
  // Without the allocation; less than any mapping; more than any; too many.
  EXPECT_FALSE(DeviceMemoryAgrees(CheckOf(events, 3, 70)));
  EXPECT_FALSE(DeviceMemoryAgrees(CheckOf(events, 3, 66)));
  EXPECT_FALSE(DeviceMemoryAgrees(CheckOf(events, 3, 34)));
  EXPECT_FALSE(DeviceMemoryAgrees(CheckOf(events, 0, 0)));
  // As many and other bytes; more than the hooks saw.
  EXPECT_FALSE(DeviceMemoryAgrees(CheckOf(events, 4, 74)));
  EXPECT_FALSE(DeviceMemoryAgrees(CheckOf(events, 5, 80)));
}

TEST(CuptiCounter, AnOpenedHandleCountsAndItsSizeIsCuptis) {
  const std::vector<DeviceEvent> events = {Made(2, DeviceKind::kAlloc, 5),
                                           Made(3, DeviceKind::kIpcOpen, 0)};
  EXPECT_TRUE(DeviceMemoryAgrees(CheckOf(events, 2, 100)));
  EXPECT_FALSE(DeviceMemoryAgrees(CheckOf(events, 1, 5)));
  EXPECT_FALSE(DeviceMemoryAgrees(CheckOf(events, 2, 5)));
}

TEST(CuptiCounter, MemoryOfGraphsCountsWhenItIsTaken) {
  DeviceEvent asked = {.kind = DeviceKind::kGraph,
                       .device = 0,
                       .size = 64,
                       .api = "cuDeviceGetGraphMemAttribute"};
  DeviceEvent given_back = asked;
  given_back.size = 0;
  const std::vector<DeviceEvent> events = {Made(2, DeviceKind::kAlloc, 5),
                                           Made(3, DeviceKind::kGraph, 64),
                                           asked, given_back};
  EXPECT_EQ(CheckOf(events, 3, 69).hooks.graphs, (CuptiCheck::Sum{1, 64}));
  EXPECT_TRUE(DeviceMemoryAgrees(CheckOf(events, 3, 69)));  // in two pieces
  EXPECT_TRUE(DeviceMemoryAgrees(CheckOf(events, 2, 69)));
  EXPECT_FALSE(DeviceMemoryAgrees(CheckOf(events, 3, 70)));
  EXPECT_FALSE(DeviceMemoryAgrees(CheckOf(events, 1, 69)));
}

TEST(CuptiCounter, MemoryOfADeviceThatNoMachineHasIsLeftOut) {
  const DeviceEvent damaged = {.kind = DeviceKind::kGraph,
                               .device = 2'000'000'000,
                               .size = 64,
                               .api = "cuDeviceGetGraphMemAttribute"};
  EXPECT_EQ(CheckOf({damaged}, 0, 0).hooks.graphs, CuptiCheck::Sum{});
}

TEST(CuptiCounter, ARunCarriesTheCheck) {
  VectorSource source;
  source.Add(Totals(1));
  source.Add(Made(2, DeviceKind::kAlloc, 7));
  CuptiTotals last = Totals(3);
  last.kinds[3] = {1, 7, 0, 0};
  last.dropped = 4;
  last.stopped = true;
  source.Add(last);

  const auto run = BuildRun(source, {});

  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(run->cupti.ran);
  EXPECT_TRUE(run->cupti.stopped);
  EXPECT_EQ(run->cupti.dropped, 4U);
  EXPECT_EQ(run->cupti.hooks.device, (CuptiCheck::Sum{1, 7}));
}

}  // namespace
}  // namespace dstrace::model
