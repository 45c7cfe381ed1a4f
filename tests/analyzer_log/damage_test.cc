// SPDX-License-Identifier: Apache-2.0
//
// Damaged files: an error that names the file, or a prefix with a note; never
// a crash, never an event that was not there.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "analyzer/log/trace_reader.h"
#include "analyzer/model/build_run.h"
#include "gtest/gtest.h"
#include "tests/support/event_log.h"
#include "tests/support/trace_builder.h"

namespace dstrace::log {
namespace {

using dstrace::testing::EventLog;
using dstrace::testing::TraceBuilder;
using dstrace::testing::WriteFile;

// A little of everything, two threads.
void Fill(TraceBuilder& trace) {
  const uint32_t stack =
      trace.NativeStack({"/x/libcudart.so.12", "/x/libc10_cuda.so"});
  proto::DeviceEvent device;
  device.set_kind(proto::DeviceEvent::ALLOC);
  device.set_api(trace.String("cuMemAlloc_v2"));
  device.set_stack(stack);
  for (uint64_t i = 0; i < 12; ++i) {
    device.set_address(0x100000 * (i + 1));
    device.set_size(1 << 20);
    trace.thread(7).Add(trace.At(10 * i), device);
    trace.thread(7).Alloc(trace.At(10 * i + 1), stack, 0x1000 * (i + 1), 300);
    trace.thread(8).StreamEvent(trace.At(10 * i + 2), 0, i, 1);
    proto::MemorySample sample;
    sample.set_free_bytes(1 << 30);
    sample.set_total_bytes(2u << 30);
    trace.thread(8).Add(trace.At(10 * i + 3), sample);
    if (i % 2 == 1) trace.thread(8).Free(trace.At(10 * i + 4), 0x1000 * i, 300);
  }
  proto::Mark mark;
  mark.set_name(trace.String("half"));
  trace.thread(7).Add(trace.At(500), mark);
  trace.thread(7).Add(trace.At(900), proto::End());
}

class DamageTest : public ::testing::Test {
 protected:
  DamageTest() {
    Fill(trace_);
    // Thousands of files: none of them needs a disk.
    fd_ = memfd_create("damage", MFD_CLOEXEC);
    EXPECT_GE(fd_, 0);
    path_ = "/proc/self/fd/" + std::to_string(fd_);
    for (const std::string& line : EventsOf(trace_.Bytes())) {
      all_.insert(line);
    }
    EXPECT_GT(all_.size(), 50U);
  }
  ~DamageTest() override { close(fd_); }

  // Opens, replays, builds. Empty where the file was refused.
  std::vector<std::string> EventsOf(const std::string& bytes) {
    WriteFile(path_, bytes);
    auto reader = TraceReader::Open(path_);
    noted_ = !reader.ok();
    if (!reader.ok()) {
      EXPECT_NE(std::string(reader.status().message()).find(path_),
                std::string::npos)
          << reader.status();
      return {};
    }
    noted_ = !(*reader)->facts().notes.empty();
    EventLog log;
    const absl::Status status = (*reader)->Replay(log);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(log.lines.size(), (*reader)->facts().event_count);
    const auto run = model::BuildRun(**reader, {});
    EXPECT_TRUE(run.ok()) << run.status();
    return log.lines;
  }

  // Stack ids and names may go missing with the chunk that defines them.
  static std::string WithoutDefinitions(const std::string& line) {
    std::string result = line.substr(0, line.rfind(" stack "));
    const size_t api = result.find(" api ");
    const size_t label = result.find(" label ");
    if (api != std::string::npos) result.erase(api, label - api);
    const size_t mark = result.find(" mark kind ");
    return mark == std::string::npos ? result : result.substr(0, mark);
  }

  void ExpectSubset(const std::vector<std::string>& events) {
    std::set<std::string> known;
    for (const std::string& line : all_) {
      known.insert(WithoutDefinitions(line));
    }
    for (const std::string& line : events) {
      EXPECT_EQ(known.count(WithoutDefinitions(line)), 1U) << line;
    }
  }

  TraceBuilder trace_;
  int fd_ = -1;
  std::string path_;
  std::set<std::string> all_;
  bool noted_ = false;  // the last file was refused or has notes
};

TEST_F(DamageTest, TruncationAtEveryByteOfACompactFileGivesAPrefix) {
  const std::string whole = trace_.CompactBytes();
  size_t before = 0;
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::string> events = EventsOf(whole.substr(0, size));
    ExpectSubset(events);
    EXPECT_GE(events.size(), before) << "at byte " << size;
    before = events.size();
    if (::testing::Test::HasFailure()) FAIL() << "at byte " << size;
  }
  EXPECT_GT(before, all_.size() / 2);
}

TEST_F(DamageTest, TruncationOfTheWritersLayoutLosesNoCommittedRecord) {
  const std::string whole = trace_.Bytes();
  const size_t last_chunk = whole.size() - 65536;
  size_t sizes = 0;
  for (size_t size = 0; size < whole.size(); ++size) {
    // All of the interesting part of each chunk, a sample of the rest.
    if (size % 65536 > 1500 && size % 509 != 0) continue;
    const std::vector<std::string> events = EventsOf(whole.substr(0, size));
    ExpectSubset(events);
    if (size > last_chunk + 1500) {
      EXPECT_EQ(events.size(), all_.size()) << "at byte " << size;
    }
    if (::testing::Test::HasFailure()) FAIL() << "at byte " << size;
    ++sizes;
  }
  EXPECT_GT(sizes, 4000U);
}

TEST_F(DamageTest, ACutThatLosesRecordsIsNoted) {
  const std::string whole = trace_.Bytes();
  const size_t last_chunk = whole.size() - 65536;

  const auto events = EventsOf(whole.substr(0, last_chunk + 100));

  EXPECT_LT(events.size(), all_.size());
  EXPECT_TRUE(noted_);
}

TEST_F(DamageTest, RandomBitFlipsNeverCrash) {
  std::mt19937 random(20240607);  // NOLINT: the same damage in every run
  for (const bool compact : {true, false}) {
    const std::string whole = compact ? trace_.CompactBytes() : trace_.Bytes();
    for (int round = 0; round < 3000; ++round) {
      std::string bytes = whole;
      const int flips = 1 + static_cast<int>(random() % 4);
      for (int i = 0; i < flips; ++i) {
        size_t at = random() % bytes.size();
        if (!compact) at = at / 65536 * 65536 + at % 1500;
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
      }
      EventsOf(bytes);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
    }
  }
}

TEST_F(DamageTest, AnyFlippedBitOfAChunkHeaderKeepsTheOtherChunks) {
  const std::string whole = trace_.Bytes();
  const size_t chunk = 65536;  // the second one
  for (size_t bit = 0; bit < 46 * 8; ++bit) {
    std::string bytes = whole;
    bytes[chunk + bit / 8] =
        static_cast<char>(bytes[chunk + bit / 8] ^ (1 << (bit % 8)));
    const std::vector<std::string> events = EventsOf(bytes);
    // Thread 8's chunk, the third, is untouched.
    const auto of_thread_8 =
        std::count_if(events.begin(), events.end(), [](const auto& line) {
          return line.find(" 8 stream-event ") != std::string::npos ||
                 line.find(" 8 sample ") != std::string::npos ||
                 line.find(" 8 free ") != std::string::npos;
        });
    EXPECT_GE(of_thread_8, 30) << "bit " << bit;
  }
}

TEST_F(DamageTest, RandomBytesAreRefusedOrSurvived) {
  std::mt19937 random(7);  // NOLINT: the same damage in every run
  for (int round = 0; round < 500; ++round) {
    std::string bytes(random() % 9000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    // Every other one starts like a trace.
    if (round % 2 == 0 && bytes.size() > 46) {
      const std::string whole = trace_.Bytes();
      std::copy_n(whole.begin(), 46, bytes.begin());
    }
    EventsOf(bytes);
  }
}

}  // namespace
}  // namespace dstrace::log
