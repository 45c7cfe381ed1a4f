// SPDX-License-Identifier: Apache-2.0
//
// libdstrace_cupti.so over a fake CUPTI, with this test in libdstrace.so's
// place.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "cupti/buffers.h"
#include "cupti/counters.h"
#include "preload/capture/cupti_seam.h"
#include "tests/fakes/fake_cupti.h"

extern "C" const DstraceCuptiClient* dstrace_cupti_start(
    const DstraceCuptiHost* host) noexcept;

namespace dstrace::cupti {
namespace {

constexpr uint32_t kPinned = 2;
constexpr uint32_t kDevice = 3;

struct Heard {
  std::vector<capture::CuptiTotals> totals;
  std::vector<std::string> properties;
  std::vector<std::string> lines;
};
Heard g_heard;

void OnTotals(const capture::CuptiTotals* totals) noexcept {
  g_heard.totals.push_back(*totals);
}
void OnProperty(const char* name, const char* value) noexcept {
  g_heard.properties.push_back(std::string(name) + "=" + value);
}
void OnSay(const char* text, const char* detail) noexcept {
  g_heard.lines.push_back(std::string(text) + detail);
}
void* Find(void* handle, const char* name) noexcept {
  return dlsym(handle, name);
}

DstraceCuptiHost Host() {
  return {kDstraceCuptiSeam,
          sizeof(DstraceCuptiHost),
          &OnTotals,
          &OnProperty,
          &OnSay,
          &Find};
}

// The library keeps its state for the life of a process: each test that starts
// it does so in a process of its own, and says there what it found.
class CuptiTest : public testing::Test {
 protected:
  void SetUp() override {
    testing::GTEST_FLAG(death_test_style) = "fast";
    g_heard = {};
  }
};

// Runs `body` in a child; a failed expectation there is a failure here.
#define IN_A_PROCESS(body)                              \
  EXPECT_EXIT(                                          \
      {                                                 \
        body();                                         \
        std::exit(testing::Test::HasFailure() ? 1 : 0); \
      },                                                \
      testing::ExitedWithCode(0), "")

const capture::CuptiTotals& Last() { return g_heard.totals.back(); }

const DstraceCuptiClient* Start(uint32_t version, bool fail = false) {
  static DstraceCuptiHost host = Host();
  FakeCuptiReset(version, fail);
  return dstrace_cupti_start(&host);
}

void CountsWhatEachVersionWrites(uint32_t version) {
  const DstraceCuptiClient* client = Start(version);
  ASSERT_NE(client, nullptr);
  ASSERT_EQ(g_heard.totals.size(), 1u);
  EXPECT_EQ(Last().kinds[kDevice].allocations, 0u);
  FakeCuptiMemory(1, kDevice, 0x1000, 4096);
  FakeCuptiMemory(1, kDevice, 0x3000, 100);
  FakeCuptiPool(1);
  FakeCuptiMemory(2, kDevice, 0x1000, 4096);
  FakeCuptiMemory(1, kPinned, 0x9000, 7);
  client->finish();

  EXPECT_EQ(Last().version, version);
  EXPECT_EQ(Last().kinds[kDevice].allocations, 2u);
  EXPECT_EQ(Last().kinds[kDevice].allocated_bytes, 4196u);
  EXPECT_EQ(Last().kinds[kDevice].frees, 1u);
  EXPECT_EQ(Last().kinds[kDevice].freed_bytes, 4096u);
  EXPECT_EQ(Last().kinds[kPinned].allocated_bytes, 7u);
  EXPECT_EQ(Last().pool_operations, 1u);
  EXPECT_EQ(Last().correlated, 4u);
  EXPECT_EQ(Last().unknown, 0u);
  EXPECT_EQ(Last().dropped, 0u);
  EXPECT_FALSE(Last().stopped);
}

TEST_F(CuptiTest, CountsTheRecordsOfEveryVersion) {
  for (const uint32_t version : {15u, 17u, 18u, 23u, 24u, 28u, 130000u}) {
    IN_A_PROCESS([version] { CountsWhatEachVersionWrites(version); });
  }
}

TEST_F(CuptiTest, CountsOverManyBuffersAndReusesThem) {
  IN_A_PROCESS([] {
    const DstraceCuptiClient* client = Start(130001);
    ASSERT_NE(client, nullptr);
    // More than all buffers together hold: none may be lost on the way.
    const uint64_t records = 80 * (Buffers::kBytes / 128);
    for (uint64_t i = 0; i < records; ++i) FakeCuptiMemory(1, kDevice, i, 2);
    client->finish();

    EXPECT_EQ(Last().kinds[kDevice].allocations, records);
    EXPECT_EQ(Last().kinds[kDevice].allocated_bytes, 2 * records);
    EXPECT_EQ(Last().dropped, 0u);
    EXPECT_GT(g_heard.totals.size(), 32u);
    EXPECT_LT(g_heard.totals.size(), 40u);  // they must fit the trace
  });
}

TEST_F(CuptiTest, RecordsOfAnUnknownKindAreCountedApart) {
  IN_A_PROCESS([] {
    const DstraceCuptiClient* client = Start(130001);
    ASSERT_NE(client, nullptr);
    FakeCuptiUnknown();
    FakeCuptiMemory(3, kDevice, 0, 1);  // no such operation
    FakeCuptiMemory(1, 77, 0, 1);       // no such kind of memory
    client->finish();

    EXPECT_EQ(Last().unknown, 3u);
    EXPECT_EQ(Last().kinds[kDevice].allocations, 0u);
  });
}

TEST_F(CuptiTest, WithoutADriverOneLineIsSaidAndNothingStarts) {
  IN_A_PROCESS([] {
    EXPECT_EQ(Start(130001, true), nullptr);
    ASSERT_EQ(g_heard.lines.size(), 1u);
    EXPECT_NE(g_heard.lines[0].find("no driver"), std::string::npos);
    EXPECT_TRUE(g_heard.totals.empty());
  });
}

TEST_F(CuptiTest, AnotherVersionOfTheSeamDoesNotStart) {
  IN_A_PROCESS([] {
    DstraceCuptiHost host = Host();
    host.version = kDstraceCuptiSeam + 1;
    EXPECT_EQ(dstrace_cupti_start(&host), nullptr);
    host = Host();
    host.size -= 8;
    EXPECT_EQ(dstrace_cupti_start(&host), nullptr);
    EXPECT_EQ(dstrace_cupti_start(nullptr), nullptr);
  });
}

TEST_F(CuptiTest, SteppingAsideLeavesNothingOfOursBehind) {
  IN_A_PROCESS([] {
    const DstraceCuptiClient* client = Start(130001);
    ASSERT_NE(client, nullptr);
    FakeCuptiMemory(1, kDevice, 1, 10);
    EXPECT_NE(FakeCuptiCurrentBuffer(), nullptr);
    client->step_aside();

    EXPECT_EQ(FakeCuptiCurrentBuffer(), nullptr);
    EXPECT_FALSE(FakeCuptiIsEnabled(49));
    EXPECT_FALSE(FakeCuptiIsEnabled(50));
    EXPECT_TRUE(Last().stopped);
    EXPECT_EQ(Last().kinds[kDevice].allocations, 1u);

    const int flushes = FakeCuptiFlushes();
    client->step_aside();
    client->finish();
    EXPECT_EQ(FakeCuptiFlushes(), flushes);
  });
}

std::vector<const uint8_t*> g_programs;
uint8_t g_programs_buffer[4096];
void ProgramRequested(uint8_t** buffer, size_t* size, size_t*) {
  *buffer = g_programs_buffer;
  *size = sizeof g_programs_buffer;
}
void ProgramCompleted(void*, uint32_t, uint8_t* buffer, size_t, size_t) {
  g_programs.push_back(buffer);
}

TEST_F(CuptiTest, ABufferOfOursNeverReachesTheProgram) {
  IN_A_PROCESS([] {
    const DstraceCuptiClient* client = Start(130001);
    ASSERT_NE(client, nullptr);
    FakeCuptiMemory(1, kDevice, 1, 10);
    // The program registers while our buffer is still at CUPTI.
    const auto completed = client->complete_for(&ProgramCompleted);
    cuptiActivityRegisterCallbacks(&ProgramRequested, completed);
    cuptiActivityFlushAll(0);
    EXPECT_TRUE(g_programs.empty());
    EXPECT_EQ(Last().kinds[kDevice].allocations, 1u);

    FakeCuptiMemory(1, kDevice, 2, 10);
    cuptiActivityFlushAll(0);
    EXPECT_EQ(g_programs, std::vector<const uint8_t*>{g_programs_buffer});
    EXPECT_EQ(Last().kinds[kDevice].allocations, 1u);
    EXPECT_EQ(client->complete_for(nullptr), nullptr);
  });
}

TEST(Counters, ARecordThatIsCutOffIsUnknown) {
  Counters counters;
  const uint8_t record[128] = {kKindMemory2};
  counters.Add(record, 127, SizesOf(130001));
  counters.Add(record, 3, SizesOf(130001));
  counters.Add(record, 112, SizesOf(15));  // whole, but no known operation
  EXPECT_EQ(counters.Read(15, false).unknown, 3u);
}

TEST(Buffers, HandsOutEachOnceUntilAllAreTaken) {
  static Buffers buffers;
  std::vector<uint8_t*> taken;
  for (size_t i = 0; i < Buffers::kCount; ++i) taken.push_back(buffers.Take());
  EXPECT_EQ(buffers.Take(), nullptr);
  for (uint8_t* buffer : taken) {
    ASSERT_NE(buffer, nullptr);
    EXPECT_TRUE(buffers.Owns(buffer));
  }
  buffers.Return(taken[7]);
  EXPECT_EQ(buffers.Take(), taken[7]);
  EXPECT_FALSE(buffers.Owns(taken[7] + 1));
  EXPECT_FALSE(buffers.Owns(nullptr));
}

TEST_F(CuptiTest, RecordsThatCuptiDropsAreCounted) {
  IN_A_PROCESS([] {
    const DstraceCuptiClient* client = Start(130001);
    ASSERT_NE(client, nullptr);
    cuptiActivityRegisterCallbacks(nullptr, nullptr);  // nowhere to write
    FakeCuptiMemory(1, kDevice, 1, 10);
    FakeCuptiMemory(1, kDevice, 1, 10);
    client->finish();
    EXPECT_EQ(Last().dropped, 2u);
    EXPECT_EQ(Last().kinds[kDevice].allocations, 0u);
  });
}

}  // namespace
}  // namespace dstrace::cupti
