// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/code_memory.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dstrace::model {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class CodeMemoryTest : public ::testing::Test {
 protected:
  void Load(int device, uint64_t handle, uint64_t size) {
    DeviceAllocation code;
    code.device = device;
    code.handle = handle;
    code.size = size;
    memory_.Load(code);
  }
  [[nodiscard]] std::map<uint64_t, uint64_t> ByHandle() const {
    std::map<uint64_t, uint64_t> bytes;
    memory_.ForEachLive(
        [&](const DeviceAllocation& code) { bytes[code.handle] += code.size; });
    return bytes;
  }

  CodeMemory memory_;
};

TEST_F(CodeMemoryTest, AnUnloadTakesFromItsModuleFirstThenFromTheLatest) {
  Load(0, 1, 4);
  Load(0, 2, 2);
  Load(0, 3, 2);
  memory_.Unload(0, 1, 5);
  EXPECT_THAT(ByHandle(), ElementsAre(Pair(2, 2), Pair(3, 1)));
  EXPECT_EQ(memory_.bytes(0), 3U);
}

TEST_F(CodeMemoryTest, AnUnloadOfMoreThanThereIsLeavesNothing) {
  Load(0, 1, 4);
  Load(1, 1, 4);
  memory_.Unload(0, 1, UINT64_MAX);
  EXPECT_EQ(memory_.bytes(0), 0U);
  EXPECT_EQ(memory_.bytes(1), 4U);
}

TEST_F(CodeMemoryTest, TheEndOfADeviceIsItsOwnOnly) {
  Load(0, 1, 4);
  Load(1, 2, 8);
  memory_.End(0);
  memory_.End(7);  // never seen
  EXPECT_THAT(ByHandle(), ElementsAre(Pair(2, 8)));
  EXPECT_EQ(memory_.bytes(0), 0U);
  EXPECT_EQ(memory_.bytes(1), 8U);
  EXPECT_EQ(memory_.bytes(7), 0U);
}

}  // namespace
}  // namespace dstrace::model
