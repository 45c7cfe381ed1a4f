// SPDX-License-Identifier: Apache-2.0
//
// Reads the trace of a thread that writes at full speed: whatever the instant,
// what is found is what was recorded, in order, from the first event on, with
// nothing missing in between and nothing twice.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "analyzer/log/trace_reader.h"
#include "preload/capture/record_tensor.h"
#include "preload/runtime/config.h"
#include "preload/runtime/guard.h"

namespace dstrace::capture {
namespace {

constexpr uint64_t kFirst = 0x700000000000;
constexpr uint64_t kBlock = 512;

// Allocation `i` of all; every 5th event is the free of a block that never was,
// every 1 000th is of another kind.
void Record(uint64_t i) {
  const runtime::Guard guard;
  RecordTensor(nullptr, kFirst + i * kBlock, i % 5 == 4 ? -512 : 512, 0, 0,
               {.type = 0, .index = 0});
  if (i % 1000 == 999) RecordMark(MarkKind::kPoint, "mark", "");
}

class SpinLock {
 public:
  void lock() {
    // acquire: pairs with the release in unlock().
    while (taken_.exchange(true, std::memory_order_acquire)) {
    }
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

class Sequence : public model::EventVisitor {
 public:
  bool OnTensorAlloc(const model::TensorAlloc& event) override {
    return Take(event.address, true);
  }
  bool OnTensorFree(const model::TensorFree& event) override {
    return Take(event.address, false);
  }

  uint64_t count = 0;
  bool good = true;

 private:
  bool Take(uint64_t address, bool is_alloc) {
    good &= address == kFirst + count * kBlock;
    good &= is_alloc == (count % 5 != 4);
    ++count;
    return good;
  }
};

class RecentTest : public testing::Test {
 protected:
  RecentTest() {
    char folder[] = "/tmp/dstrace_recent_XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/run.pb";
  }
  ~RecentTest() override {
    Kill();
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }

  // In a child, which has a recorder of its own.
  template <typename Body>
  void Start(Body body) {
    child_ = fork();
    if (child_ != 0) return;
    setenv("DSTRACE_OUTPUT", path_.c_str(), 1);
    setenv("DSTRACE_STACKS", "none", 1);
    runtime::ReadConfig();
    body();
    _exit(0);
  }
  void Kill() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  // How many events are found; -1: the file cannot be read yet.
  int64_t Read() {
    const auto reader = log::TraceReader::Open(path_);
    if (!reader.ok()) return -1;
    Sequence sequence;
    const absl::Status status = (*reader)->Replay(sequence);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(sequence.good) << "after " << sequence.count << " events";
    EXPECT_TRUE((*reader)->facts().notes.empty())
        << (*reader)->facts().notes.front();
    return static_cast<int64_t>(sequence.count);
  }

  std::string folder_;
  std::string path_;
  pid_t child_ = 0;
};

TEST_F(RecentTest, AReaderOfARunningProgramFindsABeginningWithoutGaps) {
  constexpr int kBursts = 6;
  constexpr int kBurst = 500000;
  int seen[2];  // a byte for each look that found more
  ASSERT_EQ(pipe(seen), 0);
  Start([&] {
    for (uint64_t i = 0; i < uint64_t{kBursts} * kBurst; ++i) {
      Record(i);
      char byte;
      if (i % kBurst == kBurst - 1 && read(seen[0], &byte, 1) != 1) _exit(1);
    }
    for (;;) pause();
  });
  int looks = 0;
  for (int64_t last = -1, now = 0; now < int64_t{kBursts} * kBurst;
       last = now) {
    now = Read();
    ASSERT_GE(now, last) << "an event that was there is gone";
    ASSERT_FALSE(HasFailure());
    if (now <= 0 || now == last) continue;
    ++looks;
    ASSERT_EQ(write(seen[1], "x", 1), 1);
  }
  EXPECT_GE(looks, kBursts);
  close(seen[0]);
  close(seen[1]);
}

// As torch does, whose lock says what came first.
TEST_F(RecentTest, EventsOfThreadsUnderOneLockAreReadInTheOrderOfTheLock) {
  constexpr uint64_t kEvents = 400000;
  Start([] {
    SpinLock lock;  // handed over faster than any other
    uint64_t next = 0;
    uint64_t allocated = 0;
    const auto report = [&] {
      for (;;) {
        const std::lock_guard<SpinLock> held(lock);
        if (next == kEvents) return;
        const uint64_t i = next++;
        const int64_t size = i % 5 == 4 ? -512 : 512;
        allocated += static_cast<uint64_t>(size);
        const runtime::Guard guard;
        RecordTensor(nullptr, kFirst + i * kBlock, size, allocated, 1 << 30,
                     {.type = 1, .index = 0});
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back(report);
    for (std::thread& thread : threads) thread.join();
  });
  ASSERT_EQ(waitpid(child_, nullptr, 0), child_);
  child_ = 0;
  EXPECT_EQ(Read(), static_cast<int64_t>(kEvents));
}

TEST_F(RecentTest, AnEventIsLaterThanTheOneBeforeWhateverTheCounterSays) {
  constexpr uint32_t kGpu = 1 << 8 | 5;
  constexpr uint64_t kAhead = 1000000;
  auto& last = runtime::g_hot_page.page.gpus[5].time;
  const uint64_t begin = TorchTotals::Now(kGpu, 0);
  EXPECT_GT(TorchTotals::Now(kGpu, 0), begin);
  last.store(begin + kAhead, std::memory_order_relaxed);
  EXPECT_EQ(TorchTotals::Now(kGpu, 0), begin + kAhead + 1);
  EXPECT_EQ(TorchTotals::Now(kGpu, 0), begin + kAhead + 2);
  EXPECT_LT(TorchTotals::Now(kGpu + 1, 0), begin + kAhead) << "another GPU";
  EXPECT_EQ(TorchTotals::Now(kGpu, begin + 9 * kAhead), begin + 9 * kAhead)
      << "not before what the thread has told";
}

TEST_F(RecentTest, NoEventIsLostWhereverTheProgramIsKilled) {
  for (int kill_number = 0; kill_number < 40; ++kill_number) {
    unlink(path_.c_str());
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const auto wanted = static_cast<uint64_t>(1 + kill_number * 3);
    Start([&] {
      for (uint64_t i = 0; i < wanted; ++i) Record(i);
      (void)!write(ends[1], "x", 1);
      for (;;) pause();
    });
    char byte;
    ASSERT_EQ(read(ends[0], &byte, 1), 1);
    Kill();
    close(ends[0]);
    close(ends[1]);
    EXPECT_EQ(Read(), static_cast<int64_t>(wanted));
  }
}

}  // namespace
}  // namespace dstrace::capture
