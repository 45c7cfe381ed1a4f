// SPDX-License-Identifier: Apache-2.0
//
// A context's cost apart from what others use of the device, by NVML.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/hooks/exercises.h"

extern "C" int FakeDriverRefusals();

namespace dstrace::hooks::testing {
namespace {

constexpr CUdevice kDevice = 1;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kContextBytes = 304 * kMiB;

class Nvml : public ::testing::Test {
 protected:
  // Memory of a device in which this process has no context, as another
  // process's would be.
  void SetUp() override {
    ASSERT_EQ(cuInit(0), 0);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&own_, 0), 0);
    ASSERT_EQ(cuCtxSetCurrent(own_), 0);
    CUmemAllocationProp prop{};
    prop.type = 1;
    prop.location.type = 1;
    prop.location.id = kDevice;
    ASSERT_EQ(cuMemCreate(&others_, 64 * kMiB, &prop, 0), 0);
    FakeRecorderClear();
  }
  void TearDown() override {
    ::unsetenv("FAKE_NVML");
    EXPECT_EQ(cuDevicePrimaryCtxReset_v2(kDevice), 0);
    EXPECT_EQ(cuMemRelease(others_), 0);
    EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), 0);
    FakeRecorderClear();
  }
  static uint64_t Used(size_t index) {
    const fakes::Sample& sample = FakeRecorderGet().samples.at(index);
    EXPECT_EQ(sample.device, kDevice);
    EXPECT_EQ(sample.reason, capture::SampleReason::kContext);
    return sample.total_bytes - sample.free_bytes;
  }

  CUcontext own_ = nullptr;
  CUmemGenericAllocationHandle others_ = 0;
};

TEST_F(Nvml, TellsWhatOthersUsedBeforeTheContext) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, kDevice), 0);

  ASSERT_EQ(FakeRecorderGet().samples.size(), 2u);
  EXPECT_EQ(Used(0), 64 * kMiB);
  EXPECT_EQ(Used(1), 64 * kMiB + kContextBytes);
}

TEST_F(Nvml, IsDoneWithout) {
  ::setenv("FAKE_NVML", "missing", 1);
  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, kDevice), 0);

  ASSERT_EQ(FakeRecorderGet().samples.size(), 1u);
  EXPECT_EQ(Used(0), 64 * kMiB + kContextBytes);
}

TEST_F(Nvml, IsNotAskedForAReferenceMore) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, kDevice), 0);
  FakeRecorderClear();
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, kDevice), 0);
  EXPECT_TRUE(FakeRecorderGet().samples.empty());
}

// compute-sanitizer counts what the driver refuses as the program's errors.
TEST_F(Nvml, AsksTheDriverNothingThatItRefuses) {
  ASSERT_EQ(cuCtxSetCurrent(nullptr), 0);
  const int refused = FakeDriverRefusals();
  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, kDevice), 0);
  EXPECT_EQ(FakeDriverRefusals(), refused);
  ASSERT_EQ(cuCtxSetCurrent(own_), 0);
}

}  // namespace
}  // namespace dstrace::hooks::testing
