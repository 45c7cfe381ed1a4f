// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/physical_memory.h"

#include <array>
#include <map>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dstrace::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kPage = 2 << 20;
constexpr uint64_t kBase = 0x10000000;

using Sizes = std::vector<uint64_t>;

class PhysicalMemoryTest : public ::testing::Test {
 protected:
  void Create(uint64_t handle, uint64_t size, bool shareable = false) {
    DeviceAllocation allocation;
    allocation.size = size;
    memory_.Create(handle, allocation, shareable);
  }
  Sizes Release(uint64_t handle) { return SizesOf(memory_.Release(handle)); }
  Sizes Map(uint64_t address, uint64_t size, uint64_t handle) {
    return SizesOf(memory_.Map(address, size, handle));
  }
  Sizes Unmap(uint64_t address, uint64_t size) {
    return SizesOf(memory_.Unmap(address, size));
  }
  [[nodiscard]] Sizes Live() const {
    Sizes live;
    memory_.ForEachLive([&](const DeviceAllocation& allocation) {
      live.push_back(allocation.size);
    });
    return live;
  }

  static Sizes SizesOf(const std::vector<PhysicalMemory::Dropped>& dropped) {
    Sizes sizes;
    for (const auto& one : dropped) sizes.push_back(one.allocation.size);
    return sizes;
  }

  PhysicalMemory memory_;
};

TEST_F(PhysicalMemoryTest, ReleaseWhileMappedHandsBackAtUnmap) {
  Create(1, kPage);
  EXPECT_THAT(Map(kBase, kPage, 1), IsEmpty());
  EXPECT_THAT(Release(1), IsEmpty());
  EXPECT_THAT(Live(), ElementsAre(kPage));
  EXPECT_THAT(Unmap(kBase, kPage), ElementsAre(kPage));
  EXPECT_THAT(Live(), IsEmpty());
}

TEST_F(PhysicalMemoryTest, UnmapWhileHeldHandsBackAtRelease) {
  Create(1, kPage);
  EXPECT_THAT(Map(kBase, kPage, 1), IsEmpty());
  EXPECT_THAT(Unmap(kBase, kPage), IsEmpty());
  EXPECT_THAT(Release(1), ElementsAre(kPage));
}

TEST_F(PhysicalMemoryTest, OneUnmapMayCoverManyMappings) {
  for (uint64_t i = 0; i < 4; ++i) {
    Create(i + 1, i + 1);
    EXPECT_THAT(Map(kBase + i * kPage, kPage, i + 1), IsEmpty());
    EXPECT_THAT(Release(i + 1), IsEmpty());
  }
  EXPECT_THAT(Unmap(kBase + kPage, 2 * kPage), ElementsAre(2, 3));
  EXPECT_THAT(Unmap(kBase, UINT64_MAX), ElementsAre(1, 4));
}

TEST_F(PhysicalMemoryTest, MemoryMappedTwiceNeedsBothUnmaps) {
  Create(1, kPage);
  EXPECT_THAT(Map(kBase, kPage, 1), IsEmpty());
  EXPECT_THAT(Map(2 * kBase, kPage, 1), IsEmpty());
  EXPECT_THAT(Release(1), IsEmpty());
  EXPECT_THAT(Unmap(kBase, kPage), IsEmpty());
  EXPECT_THAT(Unmap(2 * kBase, kPage), ElementsAre(kPage));
}

TEST_F(PhysicalMemoryTest, MappingOverAMappingEndsTheOlderOne) {
  Create(1, 10);
  Create(2, 20);
  EXPECT_THAT(Map(kBase, kPage, 1), IsEmpty());
  EXPECT_THAT(Release(1), IsEmpty());
  EXPECT_THAT(Map(kBase, kPage, 2), ElementsAre(10));
  EXPECT_THAT(Live(), ElementsAre(20));
}

TEST_F(PhysicalMemoryTest, AHandleNumberGivenAgainIsANewObject) {
  Create(1, 10);
  EXPECT_THAT(Map(kBase, kPage, 1), IsEmpty());
  EXPECT_THAT(Release(1), IsEmpty());
  Create(1, 20);
  EXPECT_THAT(Live(), UnorderedElementsAre(10, 20));
  EXPECT_THAT(Unmap(kBase, kPage), ElementsAre(10));
  EXPECT_THAT(Release(1), ElementsAre(20));
}

TEST_F(PhysicalMemoryTest, ARetainedHandleNeedsTwoReleases) {
  Create(1, kPage);
  memory_.Retain(1, 0);
  EXPECT_THAT(Release(1), IsEmpty());
  EXPECT_THAT(Release(1), ElementsAre(kPage));
}

TEST_F(PhysicalMemoryTest, RetainingByAddressFindsTheObject) {
  Create(1, kPage);
  EXPECT_THAT(Map(kBase, kPage, 1), IsEmpty());
  memory_.Retain(77, kBase);
  EXPECT_THAT(Release(1), IsEmpty());
  EXPECT_THAT(Unmap(kBase, kPage), IsEmpty());
  EXPECT_THAT(Release(77), ElementsAre(kPage));
}

TEST_F(PhysicalMemoryTest, WhatAnotherProcessMadeIsNeitherShownNorHandedBack) {
  memory_.Retain(9, 0);
  EXPECT_THAT(Map(kBase, kPage, 9), IsEmpty());
  EXPECT_THAT(Live(), IsEmpty());
  EXPECT_THAT(Release(9), IsEmpty());
  EXPECT_THAT(Unmap(kBase, kPage), IsEmpty());
  EXPECT_EQ(memory_.unmatched_releases(), 0U);
  EXPECT_THAT(Release(9), IsEmpty());
  EXPECT_EQ(memory_.unmatched_releases(), 1U) << "once too often";
}

TEST_F(PhysicalMemoryTest, AMappingOfAnUnknownHandleHoldsNothing) {
  EXPECT_THAT(Map(kBase, kPage, 5), IsEmpty());
  Create(5, kPage);
  EXPECT_THAT(Release(5), ElementsAre(kPage));
  EXPECT_THAT(Unmap(kBase, kPage), IsEmpty());
}

TEST_F(PhysicalMemoryTest, TellsWhatAnotherProcessMayStillHaveOpen) {
  Create(1, kPage, true);
  Create(2, kPage, false);
  EXPECT_TRUE(memory_.Release(1).at(0).shareable);
  EXPECT_FALSE(memory_.Release(2).at(0).shareable);
}

// Whatever the order of calls, an object comes back once, and is shown as live
// until then. The size stands for the object here.
TEST_F(PhysicalMemoryTest, EachObjectIsHandedBackExactlyOnce) {
  constexpr uint64_t kNumbers = 8;
  std::mt19937 random(7);
  const auto pick = [&](uint64_t below) { return random() % below; };
  std::array<int, kNumbers> held = {};  // by handle
  std::map<uint64_t, int> handed_back;
  uint64_t created = 0;
  const auto note = [&](const Sizes& sizes) {
    for (const uint64_t size : sizes) ++handed_back[size];
  };
  for (int step = 0; step < 20000; ++step) {
    const uint64_t handle = pick(kNumbers);
    const uint64_t address = kBase + pick(kNumbers) * kPage;
    const uint64_t call = pick(8);
    if (call == 0 && held[handle] == 0) {
      Create(handle, ++created);
      ++held[handle];
    } else if (call == 1) {
      memory_.Retain(handle, address);
      ++held[handle];
    } else if (call < 4 && held[handle] > 0) {
      note(Release(handle));
      --held[handle];
    } else if (call == 4) {
      note(Unmap(address, (1 + pick(3)) * kPage));
    } else {
      note(Map(address, kPage, handle));
    }
    ASSERT_EQ(Live().size() + handed_back.size(), created);
  }
  for (uint64_t handle = 0; handle < kNumbers; ++handle) {
    for (; held[handle] > 0; --held[handle]) note(Release(handle));
  }
  note(Unmap(kBase, kNumbers * kPage));
  EXPECT_GT(created, 1000U);
  EXPECT_EQ(handed_back.size(), created);
  for (const auto& [size, times] : handed_back) EXPECT_EQ(times, 1) << size;
}

}  // namespace
}  // namespace dstrace::model
