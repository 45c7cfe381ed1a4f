// SPDX-License-Identifier: Apache-2.0
//
// What is learned once per process, and when the driver's memory is sampled.
#include <gtest/gtest.h>

#include <thread>

#include "preload/hooks/cuda_abi.h"
#include "tests/hooks/fake_recorder.h"

namespace dstrace::hooks {
namespace {

using capture::DeviceKind;
using capture::SampleReason;

extern "C" {
int cuInit(unsigned int flags);
int cuMemAlloc_v2(CUdeviceptr* out, size_t size);
int cuMemFree_v2(CUdeviceptr address);
int cuMemGetInfo_v2(size_t* free_bytes, size_t* total);
int cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device);
int cuCtxGetCurrent(CUcontext* out);
int cuGetProcAddress_v2(const char* symbol, void** out, int version,
                        uint64_t flags, int* status);
int cudaMalloc(void** out, size_t size);
int cudaFree(void* pointer);
}

std::string PropertyOf(const std::string& name) {
  for (const fakes::Property& property : FakeRecorderGet().properties) {
    if (property.name == name) return property.value;
  }
  return "";
}

size_t SampleCount(SampleReason reason) {
  size_t count = 0;
  for (const fakes::Sample& sample : FakeRecorderGet().samples) {
    if (sample.reason == reason) ++count;
  }
  return count;
}

// In this order: each is a state of the process.
TEST(Facts, BeforeCuInitTheCallerGetsTheDriversAnswer) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc_v2(&address, 16), 3);
  EXPECT_EQ(cuMemFree_v2(16), 3);
  CUcontext context = nullptr;
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, 0), 3);
  EXPECT_EQ(FakeRecorderGet().events.size(), 3u);
  EXPECT_TRUE(FakeRecorderGet().samples.empty());
  EXPECT_TRUE(FakeRecorderGet().gpus.empty());
  FakeRecorderClear();
}

TEST(Facts, TheFirstContextDescribesItsGpuAndIsMeasured) {
  void* pointer = nullptr;
  ASSERT_EQ(cudaMalloc(&pointer, 1024), 0);

  ASSERT_EQ(FakeRecorderGet().gpus.size(), 1u);
  const fakes::Gpu gpu = FakeRecorderGet().gpus[0];
  EXPECT_EQ(gpu.index, 0);
  EXPECT_EQ(gpu.name, "Simulated GPU");
  EXPECT_EQ(gpu.uuid, "GPU-00112233-4455-6677-8899-aabbccddee00");
  EXPECT_EQ(gpu.total_bytes, uint64_t{8} << 30);
  EXPECT_EQ(PropertyOf("cuda.driver_version"), "13.0");
  EXPECT_EQ(PropertyOf("cuda.runtime_version"), "13.0");

  ASSERT_EQ(FakeRecorderGet().events.size(), 2u);
  EXPECT_EQ(FakeRecorderGet().events[0].kind, DeviceKind::kContextCreate);
  EXPECT_STREQ(FakeRecorderGet().events[0].label, "cudaMalloc");
  ASSERT_EQ(SampleCount(SampleReason::kContext), 1u);
  const fakes::Sample sample = FakeRecorderGet().samples[0];
  EXPECT_EQ(sample.total_bytes - sample.free_bytes, uint64_t{304} << 20);
  EXPECT_EQ(SampleCount(SampleReason::kFirst), 1u);
  EXPECT_EQ(cudaFree(pointer), 0);
  FakeRecorderClear();
}

TEST(Facts, AreRecordedOnce) {
  void* pointer = nullptr;
  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), 0);
  ASSERT_EQ(cudaMalloc(&pointer, 1024), 0);
  EXPECT_EQ(cudaFree(pointer), 0);
  EXPECT_EQ(FakeRecorderGet().gpus.size(), 1u);
  EXPECT_EQ(FakeRecorderGet().properties.size(), 2u);
  FakeRecorderClear();
}

TEST(Sampling, IsRareForSmallChangesAndSureForLargeOnes) {
  constexpr int kRounds = 200;
  CUdeviceptr address = 0;
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_EQ(cuMemAlloc_v2(&address, 512), 0);
    ASSERT_EQ(cuMemFree_v2(address), 0);
  }
  const auto& events = FakeRecorderGet().events;
  const uint64_t span = events.back().time - events.front().time;
  EXPECT_LE(FakeRecorderGet().samples.size(), span / 2'000'000 + 1);
  FakeRecorderClear();
  ASSERT_EQ(cuMemAlloc_v2(&address, size_t{32} << 20), 0);
  ASSERT_EQ(SampleCount(SampleReason::kEvent), 1u);
  EXPECT_EQ(FakeRecorderGet().samples.size(), 1u);
  size_t free_bytes = 0;
  size_t total = 0;
  ASSERT_EQ(cuMemGetInfo_v2(&free_bytes, &total), 0);
  EXPECT_EQ(FakeRecorderGet().samples[0].free_bytes, free_bytes);
  EXPECT_EQ(cuMemFree_v2(address), 0);
  FakeRecorderClear();
}

// A thread without a context is left without one.
TEST(Sampling, NeverMakesAContextCurrent) {
  std::thread([] {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc_v2(&address, size_t{64} << 20), 201);
    CUcontext context = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 1), 0);  // a new context
    CUcontext current = context;
    ASSERT_EQ(cuCtxGetCurrent(&current), 0);
    EXPECT_EQ(current, nullptr);
  }).join();
  FakeRecorderClear();
}

// A CUDA newer than the table: the driver says whether a function of a known
// name is still the one we know.
TEST(NewerCuda, KnownFunctionsAreWrappedUnderItsVersion) {
  void* found = nullptr;
  int status = 0;
  ASSERT_EQ(cuGetProcAddress_v2("cuMemAlloc", &found, 99000, 0, &status), 0);
  EXPECT_EQ(found, reinterpret_cast<void*>(&cuMemAlloc_v2));
  EXPECT_TRUE(FakeRecorderGet().losses.empty());
}

TEST(NewerCuda, AnUnknownVersionIsPassedThroughAndCountedAsLoss) {
  void* found = nullptr;
  int status = 0;
  // The fake knows a cuMemFree of CUDA 14 which the table does not.
  ASSERT_EQ(cuGetProcAddress_v2("cuMemFree", &found, 14000, 0, &status), 0);
  EXPECT_NE(found, reinterpret_cast<void*>(&cuMemFree_v2));
  EXPECT_NE(found, nullptr);
  ASSERT_EQ(FakeRecorderGet().losses.size(), 1u);
  EXPECT_EQ(FakeRecorderGet().losses[0].cause, capture::LossCause::kBypassed);
  EXPECT_EQ(FakeRecorderGet().losses[0].detail, "cuMemFree");
  ASSERT_EQ(cuGetProcAddress_v2("cuMemFree", &found, 13000, 0, &status), 0);
  EXPECT_EQ(found, reinterpret_cast<void*>(&cuMemFree_v2));
}

}  // namespace
}  // namespace dstrace::hooks
