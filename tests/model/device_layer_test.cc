// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/device_layer.h"

#include "gtest/gtest.h"

namespace dstrace::model {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class DeviceLayerTest : public ::testing::Test {
 protected:
  void Apply(const DeviceEvent& event) { layer_.Apply(event); }
  void Create(uint64_t handle, uint64_t size, int device = 0) {
    Apply({.kind = DeviceKind::kPhysicalCreate,
           .device = device,
           .size = size,
           .handle = handle});
  }
  void Release(uint64_t handle) {
    Apply({.kind = DeviceKind::kPhysicalRelease, .handle = handle});
  }
  void Map(uint64_t address, uint64_t size, uint64_t handle) {
    Apply({.kind = DeviceKind::kMap,
           .address = address,
           .size = size,
           .handle = handle});
  }
  void Unmap(uint64_t address, uint64_t size) {
    Apply({.kind = DeviceKind::kUnmap, .address = address, .size = size});
  }

  Stacks stacks_;
  Owners owners_{stacks_};
  DeviceLayer layer_{&owners_, 0};
};

TEST_F(DeviceLayerTest, CountsAllocationsUntilTheirFree) {
  Apply({.kind = DeviceKind::kAlloc,
         .device = 1,
         .address = 0x1000,
         .size = kMiB});
  EXPECT_EQ(layer_.bytes(1), kMiB);
  EXPECT_EQ(layer_.bytes(0), 0U);

  Apply({.kind = DeviceKind::kFree, .address = 0x1000});

  EXPECT_EQ(layer_.bytes(1), 0U);
  EXPECT_TRUE(layer_.seen(1));
  EXPECT_FALSE(layer_.seen(0));
}

TEST_F(DeviceLayerTest, APoolKeepsWhatIsFreedIntoIt) {
  const auto alloc = [&](uint64_t address, uint64_t size, uint64_t reserved) {
    Apply({.kind = DeviceKind::kPoolAlloc,
           .device = 0,
           .address = address,
           .size = size,
           .pool = 0x77,
           .offset = reserved});
  };
  alloc(0x1000, kMiB, 32 * kMiB);
  alloc(0x2000, 2 * kMiB, 32 * kMiB);
  EXPECT_EQ(layer_.bytes(0), 32 * kMiB);
  EXPECT_EQ(layer_.owner_bytes(0, kOwnerUnknown), 32 * kMiB);
  EXPECT_EQ(layer_.pool_bytes(0, kOwnerUnknown), 3 * kMiB);

  Apply({.kind = DeviceKind::kPoolFree, .address = 0x1000});
  EXPECT_EQ(layer_.bytes(0), 32 * kMiB);
  EXPECT_EQ(layer_.pool_bytes(0, kOwnerUnknown), 2 * kMiB);

  alloc(0x3000, 40 * kMiB, 64 * kMiB);
  EXPECT_EQ(layer_.bytes(0), 64 * kMiB);

  Apply({.kind = DeviceKind::kPoolFree, .address = 0x3000});
  Apply({.kind = DeviceKind::kPoolTrim, .pool = 0x77, .offset = 32 * kMiB});
  EXPECT_EQ(layer_.bytes(0), 32 * kMiB);
}

TEST_F(DeviceLayerTest, APoolThatWasNeverAskedHoldsWhatIsLive) {
  Apply({.kind = DeviceKind::kPoolAlloc,
         .device = 0,
         .address = 0x1000,
         .size = kMiB});
  EXPECT_EQ(layer_.bytes(0), kMiB);
  Apply({.kind = DeviceKind::kPoolFree, .address = 0x1000});
  EXPECT_EQ(layer_.bytes(0), 0U);
}

TEST_F(DeviceLayerTest, CodeIsCountedBesideAllocationsUntilItsUnload) {
  const auto load = [&](uint64_t handle, uint64_t size) {
    Apply({.kind = DeviceKind::kModuleLoad,
           .device = 0,
           .size = size,
           .handle = handle});
  };
  load(1, 4 * kMiB);
  load(2, 2 * kMiB);
  load(3, 0);
  EXPECT_EQ(layer_.code_bytes(0), 6 * kMiB);
  EXPECT_EQ(layer_.bytes(0), 0U);

  // Its own 4 MiB and one of the kernels loaded from it.
  Apply({.kind = DeviceKind::kModuleUnload,
         .device = 0,
         .size = 5 * kMiB,
         .handle = 1});
  EXPECT_EQ(layer_.code_bytes(0), kMiB);

  Apply({.kind = DeviceKind::kContextDestroy,
         .device = 0,
         .flags = 1,
         .api = "cuDevicePrimaryCtxReset_v2"});
  EXPECT_EQ(layer_.code_bytes(0), 0U);
}

TEST_F(DeviceLayerTest, FailedCallsChangeNothing) {
  Apply({.kind = DeviceKind::kAlloc,
         .device = 0,
         .address = 0x1000,
         .size = kMiB,
         .result = 2});
  EXPECT_EQ(layer_.bytes(0), 0U);
  Apply({.kind = DeviceKind::kAlloc,
         .device = 0,
         .address = 0x1000,
         .size = kMiB});
  Apply({.kind = DeviceKind::kFree, .address = 0x1000, .result = 1});
  EXPECT_EQ(layer_.bytes(0), kMiB);
}

TEST_F(DeviceLayerTest, AnUnknownDeviceIsTheDefaultOne) {
  DeviceLayer layer(&owners_, 3);
  layer.Apply({.kind = DeviceKind::kAlloc, .address = 0x1000, .size = 7});
  layer.Apply({.kind = DeviceKind::kAlloc,
               .device = 2'000'000'000,
               .address = 0x2000,
               .size = 8});
  EXPECT_EQ(layer.bytes(3), 15U);
}

TEST_F(DeviceLayerTest, NullFreesAreSilentAndForeignFreesAreCounted) {
  Apply({.kind = DeviceKind::kFree, .address = 0});
  EXPECT_EQ(layer_.unmatched_frees(), 0U);
  Apply({.kind = DeviceKind::kFree, .address = 0x1000});
  Apply({.kind = DeviceKind::kHostFree, .address = 0x1000});
  Release(5);
  EXPECT_EQ(layer_.unmatched_frees(), 3U);
}

TEST_F(DeviceLayerTest, AReusedAddressWhoseFreeWasMissedCountsOnce) {
  for (const uint64_t size : {kMiB, 2 * kMiB}) {
    Apply({.kind = DeviceKind::kAlloc,
           .device = 0,
           .address = 0x1000,
           .size = size});
  }
  EXPECT_EQ(layer_.bytes(0), 2 * kMiB);
}

TEST_F(DeviceLayerTest, PoolAllocationsMayBeFreedEitherWay) {
  for (const DeviceKind free : {DeviceKind::kFree, DeviceKind::kPoolFree}) {
    Apply({.kind = DeviceKind::kPoolAlloc,
           .device = 0,
           .address = 0x1000,
           .size = kMiB});
    EXPECT_EQ(layer_.bytes(0), kMiB);
    Apply({.kind = free, .address = 0x1000});
    EXPECT_EQ(layer_.bytes(0), 0U);
  }
}

TEST_F(DeviceLayerTest, PhysicalMemoryCountsFromCreateNotFromMap) {
  Apply({.kind = DeviceKind::kAddressReserve,
         .address = 0x10000000,
         .size = 64 * kMiB});
  EXPECT_EQ(layer_.bytes(0), 0U);
  Create(1, 2 * kMiB);
  EXPECT_EQ(layer_.bytes(0), 2 * kMiB);
  Map(0x10000000, 2 * kMiB, 1);
  EXPECT_EQ(layer_.bytes(0), 2 * kMiB);
}

TEST_F(DeviceLayerTest, ReleaseWhileMappedGivesBackAtUnmap) {
  Create(1, 2 * kMiB);
  Map(0x10000000, 2 * kMiB, 1);
  Release(1);
  EXPECT_EQ(layer_.bytes(0), 2 * kMiB);
  Unmap(0x10000000, 2 * kMiB);
  EXPECT_EQ(layer_.bytes(0), 0U);
}

TEST_F(DeviceLayerTest, MemoryOfOtherProcessesIsNotCounted) {
  Apply({.kind = DeviceKind::kPhysicalRetain, .handle = 9});
  Map(0x10000000, 2 * kMiB, 9);
  Apply({.kind = DeviceKind::kIpcOpen,
         .device = 0,
         .address = 0x30000000,
         .size = kMiB});
  EXPECT_EQ(layer_.bytes(0), 0U);
  Unmap(0x10000000, 2 * kMiB);
  Release(9);
  EXPECT_EQ(layer_.unmatched_frees(), 0U);
}

TEST_F(DeviceLayerTest, AnImportedHandleIsRetainedAndReleasedLikeAnyOther) {
  Apply({.kind = DeviceKind::kPhysicalRetain, .handle = 9, .flags = 1});
  Map(0x10000000, 2 * kMiB, 9);
  Apply({.kind = DeviceKind::kPhysicalRetain,
         .address = 0x10000000,
         .handle = 9});
  Release(9);
  Release(9);
  EXPECT_EQ(layer_.unmatched_frees(), 0U);
  Unmap(0x10000000, 2 * kMiB);
  EXPECT_EQ(layer_.bytes(0), 0U);
  EXPECT_FALSE(layer_.seen(0)) << "nothing of it is ours";
  layer_.ForEachLive([](const DeviceAllocation&) { ADD_FAILURE(); });
  Release(9);
  EXPECT_EQ(layer_.unmatched_frees(), 1U) << "once too often";
}

TEST_F(DeviceLayerTest, OnlyShareableMemoryCanOutliveItsRelease) {
  Apply({.kind = DeviceKind::kPhysicalCreate,
         .device = 0,
         .size = 4 * kMiB,
         .handle = 1,
         .offset = 1});
  Create(2, 2 * kMiB);
  Release(2);
  EXPECT_EQ(layer_.released_shareable(0), 0U);
  Map(0x10000000, 4 * kMiB, 1);
  Release(1);
  EXPECT_EQ(layer_.released_shareable(0), 0U) << "still mapped here";
  Unmap(0x10000000, 4 * kMiB);
  EXPECT_EQ(layer_.released_shareable(0), 4 * kMiB);
  EXPECT_EQ(layer_.bytes(0), 0U);
}

TEST_F(DeviceLayerTest, HostAndManagedMemoryStandBeside) {
  Apply({.kind = DeviceKind::kHostAlloc,
         .device = kHostIndex,
         .address = 0x1,
         .size = 3});
  Apply({.kind = DeviceKind::kHostRegister,
         .device = kHostIndex,
         .address = 0x2,
         .size = 4});
  Create(1, 5, kHostIndex);
  Apply({.kind = DeviceKind::kManagedAlloc,
         .device = 0,
         .address = 0x3,
         .size = 6});
  EXPECT_EQ(layer_.host_pinned_bytes(), 12U);
  EXPECT_EQ(layer_.managed_bytes(0), 6U);
  EXPECT_EQ(layer_.bytes(0), 0U);

  Apply({.kind = DeviceKind::kHostFree, .address = 0x1});
  Apply({.kind = DeviceKind::kHostUnregister, .address = 0x2});
  Release(1);
  Apply({.kind = DeviceKind::kFree, .address = 0x3});
  EXPECT_EQ(layer_.host_pinned_bytes(), 0U);
  EXPECT_EQ(layer_.managed_bytes(0), 0U);
  EXPECT_EQ(layer_.unmatched_frees(), 0U);
}

TEST_F(DeviceLayerTest, ManagedMemoryReachesAsFarAsItsBlocksOf2MiB) {
  const auto managed = [&](uint64_t address, uint64_t size) {
    Apply({.kind = DeviceKind::kManagedAlloc,
           .device = 0,
           .address = address,
           .size = size});
  };
  managed(4 * kMiB, kMiB);
  managed(5 * kMiB, 10);  // in the same block
  EXPECT_EQ(layer_.managed_extent(0), 2 * kMiB);
  managed(5 * kMiB + 512, 8 * kMiB);  // from that block into a fifth one
  EXPECT_EQ(layer_.managed_extent(0), 10 * kMiB);
  Apply({.kind = DeviceKind::kFree, .address = 4 * kMiB});
  EXPECT_EQ(layer_.managed_extent(0), 10 * kMiB);
  Apply({.kind = DeviceKind::kFree, .address = 5 * kMiB + 512});
  EXPECT_EQ(layer_.managed_extent(0), 2 * kMiB);
  Apply({.kind = DeviceKind::kFree, .address = 5 * kMiB});
  EXPECT_EQ(layer_.managed_extent(0), 0U);
}

TEST_F(DeviceLayerTest, WhatMemoryNodesHoldIsTheDriversFigureByTheirStacks) {
  const auto node = [&](uint64_t address, uint64_t size, StackId stack) {
    Apply({.kind = DeviceKind::kGraph,
           .stack = stack,
           .device = 0,
           .address = address,
           .size = size,
           .api = "cuGraphAddMemAllocNode"});
  };
  const auto reserved = [&](uint64_t size) {
    Apply({.kind = DeviceKind::kGraph,
           .stack = 8,
           .device = 0,
           .size = size,
           .api = "cuDeviceGetGraphMemAttribute"});
  };
  const auto bytes_of = [&](StackId stack) {
    uint64_t bytes = 0;
    layer_.ForEachLive([&](const DeviceAllocation& allocation) {
      if (allocation.stack != stack) return;
      EXPECT_EQ(owners_.Name(allocation.owner), kGraphOwner);
      bytes += allocation.size;
    });
    return bytes;
  };
  node(0x1000, 30 * kMiB, 5);
  node(0x9000, 10 * kMiB, 6);
  EXPECT_EQ(layer_.bytes(0), 0U);  // not launched
  reserved(44 * kMiB);
  EXPECT_EQ(layer_.bytes(0), 44 * kMiB);
  EXPECT_EQ(bytes_of(5), 33 * kMiB);
  EXPECT_EQ(bytes_of(6), 11 * kMiB);
  reserved(40 * kMiB);
  EXPECT_EQ(layer_.bytes(0), 40 * kMiB);
  // The program may free a node's memory itself.
  Apply({.kind = DeviceKind::kPoolFree, .address = 0x1000});
  EXPECT_EQ(layer_.unmatched_frees(), 0U);
  EXPECT_EQ(layer_.bytes(0), 40 * kMiB);
  reserved(0);
  EXPECT_EQ(layer_.bytes(0), 0U);
}

TEST_F(DeviceLayerTest, TheEndOfAPrimaryContextFreesItsDevice) {
  for (const int device : {0, 1}) {
    Apply({.kind = DeviceKind::kAlloc,
           .device = device,
           .address = 0x1000 + static_cast<uint64_t>(device),
           .size = kMiB});
  }
  Apply({.kind = DeviceKind::kContextDestroy,
         .device = 1,
         .api = "cuDevicePrimaryCtxRelease_v2"});
  EXPECT_EQ(layer_.bytes(1), kMiB);
  Apply({.kind = DeviceKind::kContextDestroy,
         .device = 1,
         .flags = 1,
         .api = "cuDevicePrimaryCtxReset_v2"});
  EXPECT_EQ(layer_.bytes(1), 0U);
  EXPECT_EQ(layer_.bytes(0), kMiB);
}

// No recorder writes that; a damaged trace may say so.
TEST_F(DeviceLayerTest, TheEndOfAContextOfTheHostChangesNothing) {
  Apply({.kind = DeviceKind::kAlloc,
         .device = 0,
         .address = 0x1000,
         .size = kMiB});
  Apply({.kind = DeviceKind::kHostAlloc,
         .device = kHostIndex,
         .address = 0x2000,
         .size = 3});
  Apply({.kind = DeviceKind::kContextDestroy,
         .device = kHostIndex,
         .flags = 1,
         .api = "cuDevicePrimaryCtxReset_v2"});
  EXPECT_EQ(layer_.bytes(0), kMiB);
  EXPECT_EQ(layer_.host_pinned_bytes(), 3U);
}

}  // namespace
}  // namespace dstrace::model
