// SPDX-License-Identifier: Apache-2.0
//
// A program that uses CUPTI itself, with the hooks in front: whatever
// DSTRACE_CUPTI says, CUPTI gets exactly its calls. What happens to dstrace's
// own use of it is in tests/cupti/ and tests/e2e/cupti_test.py.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/fakes/fake_cupti.h"
#include "tests/hooks/fake_recorder.h"

namespace {

void OnRequested(uint8_t** buffer, size_t* size, size_t*) {
  *buffer = nullptr;
  *size = 0;
}
void OnCompleted(void*, uint32_t, uint8_t*, size_t, size_t) {}

void* Ours(const char* name) { return dlsym(RTLD_DEFAULT, name); }

class CuptiHooksTest : public testing::Test {
 protected:
  void SetUp() override { FakeCuptiReset(130001, false); }
};

TEST_F(CuptiHooksTest, TheLinkerFindsTheHooksFirst) {
  void* fake = dlopen("libcupti.so.13", RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(fake, nullptr);
  Dl_info info;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&cuptiFinalize), &info), 0);
  EXPECT_NE(std::string(info.dli_fname).find("under_test"), std::string::npos);
  // A look-up in CUPTI itself is answered with the hook too.
  EXPECT_EQ(dlsym(fake, "cuptiActivityEnable"), Ours("cuptiActivityEnable"));
}

TEST_F(CuptiHooksTest, EachCallGoesOnWithItsArguments) {
  void* subscriber = nullptr;
  EXPECT_EQ(cuptiSubscribe(&subscriber, nullptr, nullptr), 0);
  EXPECT_NE(subscriber, nullptr);
  EXPECT_EQ(cuptiSubscribe_v2(&subscriber, nullptr, nullptr, nullptr), 39);
  EXPECT_EQ(cuptiActivityRegisterCallbacks(&OnRequested, &OnCompleted), 0);
  EXPECT_EQ(FakeCuptiCompleted(), reinterpret_cast<void*>(&OnCompleted));
  EXPECT_EQ(cuptiActivityEnable(49), 0);
  EXPECT_TRUE(FakeCuptiIsEnabled(49));
  EXPECT_EQ(cuptiActivityEnableContext(nullptr, 8), 0);
  EXPECT_TRUE(FakeCuptiIsEnabled(8));
  EXPECT_EQ(cuptiFinalize(), 0);
  EXPECT_FALSE(FakeCuptiIsEnabled(8));
}

TEST_F(CuptiHooksTest, CuptisOwnErrorIsTheAnswer) {
  FakeCuptiReset(130001, true);
  void* subscriber = nullptr;
  EXPECT_EQ(cuptiSubscribe(&subscriber, nullptr, nullptr), 999);
  EXPECT_EQ(cuptiActivityEnable(3), 999);
}

TEST_F(CuptiHooksTest, TheTraceNamesOneOfTheCalls) {
  cuptiActivityEnable(3);
  cuptiActivityEnable(4);
  cuptiFinalize();
  int named = 0;
  for (const auto& property : FakeRecorderGet().properties) {
    if (property.name != "cupti.program") continue;
    ++named;
    EXPECT_EQ(property.value.rfind("cupti", 0), 0u);
  }
  EXPECT_EQ(named, 1);
}

}  // namespace
