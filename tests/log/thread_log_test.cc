// SPDX-License-Identifier: Apache-2.0
#include "preload/log/thread_log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "proto/wire/records.h"
#include "tests/log/log_fixture.h"

namespace dstrace::log {
namespace {

class ThreadLogTest : public LogFixture {
 protected:
  ThreadLogTest() {
    EXPECT_EQ(file_.Open(path_.c_str(), {}), OpenResult::kOk);
    log_ = std::make_unique<ThreadLog>();
    log_->AdoptBy(1);
  }
  ~ThreadLogTest() override { log_->Close(file_); }

  LogFile file_;
  std::unique_ptr<ThreadLog> log_;
};

TEST_F(ThreadLogTest, TimeNeverRunsBackwardsInsideAChunk) {
  ASSERT_TRUE(log_->EnsureRoom(file_, 100, 1000));
  EXPECT_EQ(log_->TimeDelta(1500), 500u);
  EXPECT_EQ(log_->TimeDelta(1200), 0u);
  EXPECT_EQ(log_->TimeDelta(1600), 100u);
}

TEST_F(ThreadLogTest, ARecordThatDidNotFitLeavesNoTrace) {
  ASSERT_TRUE(log_->EnsureRoom(file_, 100, 1));
  wire::Encoder good = log_->encoder();
  wire::PutEnd(good, 0, 1, 0);
  ASSERT_TRUE(log_->Commit(good));
  wire::Encoder bad = log_->encoder();
  wire::PutString(bad, 1, std::string(70000, 'x'));
  EXPECT_FALSE(log_->Commit(bad));
  EXPECT_EQ(log_->encoder().position(), good.position());
}

TEST_F(ThreadLogTest, AnAdoptedLogAsksForAThreadRecordOnce) {
  ASSERT_TRUE(log_->EnsureRoom(file_, 100, 1));
  EXPECT_FALSE(log_->NeedsThreadRecord());
  log_->AdoptBy(2);
  EXPECT_TRUE(log_->NeedsThreadRecord());
  log_->NoteThreadRecorded();
  EXPECT_FALSE(log_->NeedsThreadRecord());
}

TEST_F(ThreadLogTest, ANewChunkOfTheAdopterNeedsNoThreadRecord) {
  ASSERT_TRUE(log_->EnsureRoom(file_, 100, 1));
  log_->AdoptBy(2);
  ASSERT_TRUE(log_->EnsureRoom(file_, wire::kPayloadBytes, 2));
  wire::Encoder fill = log_->encoder();
  wire::PutEnd(fill, 0, 1, 0);
  log_->Commit(fill);
  ASSERT_TRUE(log_->EnsureRoom(file_, wire::kPayloadBytes, 3));
  EXPECT_FALSE(log_->NeedsThreadRecord());
}

// The first slots that a reader would take.
class Recent {
 public:
  explicit Recent(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> chunk(wire::kChunkBytes);
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    std::memcpy(&committed, chunk.data() + wire::kCommittedOffset, 4);
    std::memcpy(slots, chunk.data() + wire::kRecentOffset, sizeof slots);
    payload.assign(chunk.data() + wire::kPayloadOffset, committed);
    const auto counts = [&](size_t slot) {
      return slots[slot].stack_device_tag >> 48 == committed + 1;
    };
    while (first < wire::kRecentTensors && !counts(first)) ++first;
    while (first + count < wire::kRecentTensors && counts(first + count)) {
      ++count;
    }
  }

  uint32_t committed = 0;
  size_t first = 0;
  size_t count = 0;
  wire::RecentTensor slots[wire::kRecentTensors];
  std::string payload;
};

void AddRecent(ThreadLog& log, LogFile& file, uint64_t time) {
  if (!log.HasRecentRoom()) {
    ASSERT_TRUE(log.EnsureRoom(file, ThreadLog::kLeastBatchBytes, time));
    log.BeginRecent();
  }
  log.AddRecent(time, 0x7f0000000000, time % 2 == 0 ? 512 : -512, 3, 0x100);
}

TEST_F(ThreadLogTest, ATensorIsInTheFileFromTheFirstInstant) {
  AddRecent(*log_, file_, 1000);
  const Recent found(path_);
  ASSERT_EQ(found.count, 1u);
  EXPECT_EQ(found.slots[0].time, 1000u);
  EXPECT_EQ(found.slots[0].address, 0x7f0000000000u);
  EXPECT_EQ(found.slots[0].size, 512);
  EXPECT_EQ(found.slots[0].stack_device_tag & 0xffffffffffff, 0x010000000003u);
  EXPECT_EQ(found.committed, 0u);
}

TEST_F(ThreadLogTest, ThePayloadTakesSixtyFourTensorsOverAtOnce) {
  for (uint64_t i = 0; i < 64; ++i) AddRecent(*log_, file_, 1000 + i);
  EXPECT_EQ(Recent(path_).count, 64u);
  EXPECT_EQ(Recent(path_).committed, 0u);

  AddRecent(*log_, file_, 1064);
  const Recent found(path_);
  EXPECT_EQ(found.count, 1u) << "those before are in the payload now";
  EXPECT_EQ(found.slots[0].time, 1064u);
  size_t records = 0;
  for (size_t at = 0; at < found.payload.size(); ++records) {
    at += 2 + static_cast<size_t>(found.payload[at + 1]);
  }
  EXPECT_EQ(records, 64u);
}

// Each of them as long as a tensor's record can be.
TEST_F(ThreadLogTest, ABatchNeverOutgrowsThePayloadAndUsesItUp) {
  uint64_t time = 1;
  uint32_t before = 0;
  std::set<size_t> firsts;
  for (;; time += uint64_t{1} << 40) {
    if (!log_->HasRecentRoom()) {
      ASSERT_TRUE(log_->EnsureRoom(file_, ThreadLog::kLeastBatchBytes, time));
      log_->BeginRecent();
    }
    log_->AddRecent(time, ~time << 20, INT64_MIN + static_cast<int64_t>(time),
                    ~0u, 0xffff);
    const Recent now(path_);
    if (now.committed < before) break;  // the next chunk
    before = now.committed;
    firsts.insert(now.first);
  }
  EXPECT_LE(before, wire::kPayloadBytes);
  EXPECT_GT(before, wire::kPayloadBytes - ThreadLog::kLeastBatchBytes -
                        wire::kMaxTensorBytes);
  EXPECT_GT(firsts.size(), 2u) << "full ones, and smaller ones at the end";
  EXPECT_EQ(*firsts.begin(), 0u);
}

TEST_F(ThreadLogTest, AnotherRecordComesAfterTheTensorsBeforeIt) {
  AddRecent(*log_, file_, 1000);
  ASSERT_TRUE(log_->EnsureRoom(file_, 100, 1001));
  const Recent found(path_);
  EXPECT_EQ(found.count, 0u);
  EXPECT_GT(found.committed, 0u);
  EXPECT_FALSE(log_->HasRecentRoom());
}

TEST_F(ThreadLogTest, AnAdopterDoesNotGetTheTensorsOfTheThreadBefore) {
  AddRecent(*log_, file_, 1000);
  log_->AdoptBy(2);
  EXPECT_EQ(Recent(path_).count, 0u);
  EXPECT_FALSE(log_->HasRecentRoom()) << "its thread record comes first";
}

// What a reader does with the same references.
class MirrorDictionary {
 public:
  using Block = std::tuple<uint64_t, uint64_t, uint32_t>;
  Block Resolve(const wire::BlockRef& ref) {
    if (ref.slot_plus_one != 0) return slots_.at(ref.slot_plus_one - 1);
    uint64_t delta = static_cast<uint64_t>(ref.address_delta);
    Block block{0, ref.size, ref.device};
    if (ref.is_short) {  // what is not written must be implied
      delta = delta >> 9 << 9;
      block = {0, ref.size >> 9 << 9, std::get<2>(literal_)};
    }
    std::get<0>(block) = std::get<0>(literal_) + delta;
    literal_ = block;
    if (slots_.size() < BlockDictionary::kSlots) slots_.push_back(block);
    return block;
  }

 private:
  Block literal_;
  std::vector<Block> slots_;
};

// As a record names a block.
wire::BlockRef Refer(BlockDictionary& dictionary, uint64_t address,
                     uint64_t size, uint32_t device) {
  const uint32_t slot = dictionary.Find(address, size, device);
  return slot != 0 ? wire::BlockRef{.slot_plus_one = slot}
                   : dictionary.Add(address, size, device);
}

TEST(BlockDictionary, AReaderThatMirrorsItResolvesEveryReference) {
  std::mt19937_64 random(20261130);
  auto dictionary = std::make_unique<BlockDictionary>();
  for (int round = 0; round < 3; ++round) {
    dictionary->Clear();
    MirrorDictionary mirror;
    for (int i = 0; i < 50000; ++i) {
      const uint64_t unit = random() % 8 == 0 ? 16 : 512;
      const uint64_t address = 0x7f0000000000 + random() % 9000 * unit;
      const uint64_t size = unit * (1 + random() % 3);
      const uint32_t device = 256 + random() % 16 / 15;
      const wire::BlockRef ref = Refer(*dictionary, address, size, device);
      ASSERT_EQ(mirror.Resolve(ref), std::make_tuple(address, size, device));
    }
  }
}

TEST(BlockDictionary, ABlockThatDoesNotFitAnEntryIsNeverTakenForAnother) {
  auto dictionary = std::make_unique<BlockDictionary>();
  dictionary->Clear();
  MirrorDictionary mirror;
  constexpr uint64_t kLow = 0x7f0000000000;
  const auto check = [&](uint64_t address, uint64_t size, uint32_t device) {
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(mirror.Resolve(Refer(*dictionary, address, size, device)),
                std::make_tuple(address, size, device));
    }
  };
  for (const uint64_t address : {kLow, kLow | uint64_t{1} << 48, kLow << 16}) {
    for (const uint64_t size :
         {uint64_t{512}, uint64_t{512} + (uint64_t{1} << 40),
          uint64_t{512} + (uint64_t{1} << 52)}) {
      for (const uint32_t device : {0x100u, 0x101u, 0x10100u}) {
        check(address, size, device);
      }
    }
  }
}

TEST(BlockDictionary, ForgetsWithEachChunkHoweverManyThereWere) {
  auto dictionary = std::make_unique<BlockDictionary>();
  for (int chunk = 0; chunk < 10000; ++chunk) {
    dictionary->Clear();
    ASSERT_EQ(dictionary->Find(0x1000, 512, 256), 0u) << chunk;
    (void)dictionary->Add(0x1000, 512, 256);
    ASSERT_EQ(dictionary->Find(0x1000, 512, 256), 1u) << chunk;
  }
}

TEST(BlockDictionary, ASecondMentionIsASlot) {
  auto dictionary = std::make_unique<BlockDictionary>();
  dictionary->Clear();
  EXPECT_EQ(Refer(*dictionary, 0x1000, 512, 256).slot_plus_one, 0u);
  EXPECT_EQ(Refer(*dictionary, 0x1000, 512, 256).slot_plus_one, 1u);
  EXPECT_EQ(Refer(*dictionary, 0x1000, 1024, 256).slot_plus_one, 0u)
      << "same address, another block";
  EXPECT_EQ(Refer(*dictionary, 0x1000, 1024, 256).slot_plus_one, 2u);
  EXPECT_EQ(Refer(*dictionary, 0x1000, 512, 256).slot_plus_one, 1u)
      << "a place that is cut in two ways keeps both";
}

TEST(BlockDictionary, ALiteralIsShortWhereDeviceAndLowBitsAreImplied) {
  auto dictionary = std::make_unique<BlockDictionary>();
  dictionary->Clear();
  const auto is_short = [&](uint64_t address, uint64_t size, uint32_t device) {
    return Refer(*dictionary, address, size, device).is_short;
  };
  EXPECT_FALSE(is_short(0x10000, 512, 256)) << "the device is not known yet";
  EXPECT_TRUE(is_short(0x20000, 1024, 256));
  EXPECT_TRUE(is_short(0x8000, 512, 256)) << "backwards";
  EXPECT_FALSE(is_short(0x30000, 512, 257)) << "another device";
  EXPECT_FALSE(is_short(0x40000, 100, 257)) << "odd size";
  EXPECT_FALSE(is_short(0x50010, 512, 257)) << "odd address";
  EXPECT_FALSE(is_short(0x60000, 512, 257)) << "back from an odd address";
  EXPECT_TRUE(is_short(0x70000, 512, 257));
}

}  // namespace
}  // namespace dstrace::log
