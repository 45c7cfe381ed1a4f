// SPDX-License-Identifier: Apache-2.0
//
// A process under the hooks that has no CUDA at first.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "preload/hooks/cuda_abi.h"
#include "tests/hooks/fake_recorder.h"

namespace dstrace::hooks {
namespace {

extern "C" {
int cudaMalloc(void** out, size_t size);
int cudaFree(void* pointer);
int cuMemAlloc_v2(CUdeviceptr* out, size_t size);
int ncclCommDestroy(ncclComm_t comm);
}

using Malloc = int(void**, size_t);

constexpr char kOwnRuntime[] = "libcudart.so.12";

TEST(WithoutCuda, CallsFailAsMissingFunctionsAndNothingIsRecorded) {
  void* pointer = nullptr;
  CUdeviceptr address = 0;
  EXPECT_EQ(cudaMalloc(&pointer, 16), kCudaErrorUnknown);
  EXPECT_EQ(cuMemAlloc_v2(&address, 16), kCudaNotFound);
  EXPECT_EQ(ncclCommDestroy(nullptr), kNcclSystemError);
  EXPECT_TRUE(FakeRecorderGet().events.empty());
  EXPECT_TRUE(FakeRecorderGet().gpus.empty());
}

// A program that probes for CUDA must not find our exports.
TEST(WithoutCuda, ProbesFindNothing) {
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "cudaMalloc"), nullptr);
  const char* message = dlerror();
  ASSERT_NE(message, nullptr);
  EXPECT_NE(std::string(message).find("cudaMalloc"), std::string::npos);
  void* program = dlopen(nullptr, RTLD_NOW);
  ASSERT_NE(program, nullptr);
  EXPECT_EQ(dlsym(program, "cuMemAlloc_v2"), nullptr);
  dlclose(program);
}

// Python opens cudart RTLD_LOCAL: not in the scope of RTLD_NEXT.
TEST(LocalRuntime, IsFoundAndForgottenWhenItIsUnloaded) {
  for (int round = 0; round < 3; ++round) {
    FakeRecorderClear();
    void* runtime = dlopen(kOwnRuntime, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(runtime, nullptr) << dlerror();
    void* pointer = nullptr;
    ASSERT_EQ(cudaMalloc(&pointer, 4096), 0);
    EXPECT_EQ(dlsym(runtime, "cudaMalloc"),
              reinterpret_cast<void*>(&cudaMalloc));

    // No driver beneath: the runtime's call is the event.
    ASSERT_EQ(FakeRecorderGet().events.size(), 1u);
    const capture::DeviceEvent event = FakeRecorderGet().events.front();
    EXPECT_STREQ(event.api, "cudaMalloc");
    EXPECT_EQ(event.label, nullptr);
    EXPECT_EQ(event.kind, capture::DeviceKind::kAlloc);
    EXPECT_EQ(event.address, reinterpret_cast<uint64_t>(pointer));
    EXPECT_EQ(event.size, 4096u);
    EXPECT_EQ(event.device, capture::kDeviceUnknown);
    EXPECT_EQ(cudaFree(nullptr), 0);
    EXPECT_EQ(FakeRecorderGet().events.size(), 1u);

    EXPECT_EQ(FakeRecorderGet().module_changes, 0);
    ASSERT_EQ(dlclose(runtime), 0);
    EXPECT_EQ(FakeRecorderGet().module_changes, 1);
    EXPECT_EQ(cudaMalloc(&pointer, 16), kCudaErrorUnknown);
  }
}

// Each of two runtimes in one process keeps its own callers.
TEST(TwoRuntimes, AreNotMixedUp) {
  void* first = dlopen(kOwnRuntime, RTLD_NOW | RTLD_LOCAL);
  void* second = dlopen("libcudart.so.11.0", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr) << dlerror();
  void* pointer = nullptr;
  auto* by_first = reinterpret_cast<Malloc*>(dlsym(first, "cudaMalloc"));
  auto* by_second = reinterpret_cast<Malloc*>(dlsym(second, "cudaMalloc"));
  ASSERT_EQ(by_first(&pointer, 16), 0);
  EXPECT_EQ(reinterpret_cast<uint64_t>(pointer) >> 32, 0x12u);
  ASSERT_EQ(by_second(&pointer, 16), 0);
  EXPECT_EQ(reinterpret_cast<uint64_t>(pointer) >> 32, 0x11u);
  dlclose(first);
  dlclose(second);
}

// Linked callers too: symbol versions used to tell them apart.
TEST(TwoRuntimes, KeepTheirLinkedCallers) {
  using Ask = int(void**);
  void* old_user = dlopen("libuser_11.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(old_user, nullptr) << dlerror();
  void* new_user = dlopen("libuser_12.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(new_user, nullptr) << dlerror();
  auto* ask_old = reinterpret_cast<Ask*>(dlsym(old_user, "UserMalloc"));
  auto* ask_new = reinterpret_cast<Ask*>(dlsym(new_user, "UserMalloc"));
  for (int round = 0; round < 3; ++round) {
    void* pointer = nullptr;
    FakeRecorderClear();
    ASSERT_EQ(ask_old(&pointer), 0);
    EXPECT_EQ(reinterpret_cast<uint64_t>(pointer) >> 32, 0x11u);
    ASSERT_EQ(ask_new(&pointer), 0);
    EXPECT_EQ(reinterpret_cast<uint64_t>(pointer) >> 32, 0x12u);
    EXPECT_EQ(FakeRecorderGet().events.size(), 2u);
  }
  EXPECT_EQ(dlclose(old_user), 0);
  void* pointer = nullptr;
  ASSERT_EQ(ask_new(&pointer), 0);
  EXPECT_EQ(reinterpret_cast<uint64_t>(pointer) >> 32, 0x12u);
  EXPECT_EQ(dlclose(new_user), 0);
}

TEST(Dlclose, SaysNothingWhenOnlyAReferenceIsDropped) {
  void* first = dlopen(kOwnRuntime, RTLD_NOW | RTLD_LOCAL);
  void* again = dlopen(kOwnRuntime, RTLD_NOW | RTLD_LOCAL);
  ASSERT_EQ(first, again);
  FakeRecorderClear();
  EXPECT_EQ(dlclose(again), 0);
  EXPECT_EQ(FakeRecorderGet().module_changes, 0);
  EXPECT_EQ(dlclose(first), 0);
  EXPECT_EQ(FakeRecorderGet().module_changes, 1);
}

}  // namespace
}  // namespace dstrace::hooks
