// SPDX-License-Identifier: Apache-2.0
//
// Linked as: another preload, us, a third preload, CUDA.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/hooks/fake_recorder.h"

extern "C" {
int cudaMalloc(void** out, unsigned long size);
int cudaFree(void* pointer);
int BeforeCalls();
int AfterCalls();
const char* BeforeNext();
const char* AfterNext();
}

namespace {

TEST(OtherPreloads, AreCalledInTheirOrderAndTheCallIsRecordedOnce) {
  void* pointer = nullptr;
  const int before = BeforeCalls();
  const int after = AfterCalls();
  FakeRecorderClear();

  ASSERT_EQ(cudaMalloc(&pointer, 4096), 0);

  EXPECT_EQ(BeforeCalls(), before + 1);
  EXPECT_EQ(AfterCalls(), after + 1);
  int allocs = 0;
  for (const auto& event : FakeRecorderGet().events) {
    if (event.kind != dstrace::capture::DeviceKind::kAlloc) continue;
    EXPECT_STREQ(event.api, "cuMemAlloc_v2");
    EXPECT_STREQ(event.label, "cudaMalloc");
    EXPECT_EQ(event.address, reinterpret_cast<uint64_t>(pointer));
    ++allocs;
  }
  EXPECT_EQ(allocs, 1);
  EXPECT_EQ(cudaFree(pointer), 0);
}

// libc's dlsym knows "next" by its return address: it has to be the caller's.
TEST(Dlsym, FindsWhatIsNextToItsCaller) {
  EXPECT_STREQ(BeforeNext(), "after");
  EXPECT_STREQ(AfterNext(), "nobody");
}

TEST(Dlsym, LeavesOtherNamesAlone) {
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "cuNoSuchFunction"), nullptr);
  const char* message = dlerror();
  ASSERT_NE(message, nullptr);
  EXPECT_NE(std::string(message).find("cuNoSuchFunction"), std::string::npos);
  EXPECT_NE(dlsym(RTLD_DEFAULT, "malloc"), nullptr);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "strlen"), dlsym(RTLD_NEXT, "strlen"));
}

}  // namespace
