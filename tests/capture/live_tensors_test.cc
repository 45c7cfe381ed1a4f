// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/live_tensors.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "preload/runtime/event_clock.h"
#include "preload/runtime/memory.h"
#include "tests/log/log_fixture.h"

namespace dstrace::capture {
namespace {

using Outcome = LiveTensors::Outcome;

// What a thread that records has; times are the tests' own. Whose thread calls
// is all the same.
class Recorder {
 public:
  Recorder(LiveTensors& live, log::LogFile& file, uint32_t thread)
      : live_(live),
        file_(file),
        log_(static_cast<log::ThreadLog*>(
            runtime::MapPages(sizeof(log::ThreadLog)))) {
    log_->AdoptBy(thread);
    changes_ = live_.Register(*log_);
  }
  ~Recorder() { runtime::UnmapPages(log_, sizeof(log::ThreadLog)); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  log::ThreadLog& log() { return *log_; }
  LiveTensors::Changes& changes() { return *changes_; }

  void Alloc(uint64_t address, uint64_t time) { Record(address, 512, time); }
  void Free(uint64_t address, uint64_t time) { Record(address, -512, time); }
  void Settle() { EXPECT_TRUE(live_.Settle(*changes_)); }

  void lock() { changes_->mutex().Lock(); }
  void unlock() { changes_->mutex().Unlock(); }

 private:
  void Record(uint64_t address, int64_t size, uint64_t time) {
    if (!log_->HasRecentRoom()) {
      Settle();
      ASSERT_TRUE(log_->EnsureRoom(file_, log::ThreadLog::kLeastBatchBytes, 1));
      const std::lock_guard lock(*this);
      log_->BeginRecent();
    }
    log_->AddRecent(time, address, size, /*stack=*/7, 1 << 8);
  }

  LiveTensors& live_;
  log::LogFile& file_;
  log::ThreadLog* const log_;
  LiveTensors::Changes* changes_ = nullptr;
};

class LiveTensorsTest : public log::LogFixture {
 protected:
  LiveTensorsTest() {
    EXPECT_EQ(file_.Open(path_.c_str(), {}), log::OpenResult::kOk);
  }

  Outcome CatchUp(uint64_t time) {
    live_.LockAll();
    const Outcome outcome = live_.CatchUp(time);
    live_.UnlockAll();
    return outcome;
  }
  // Address and time of what is live after an event at `time`.
  std::map<uint64_t, uint64_t> LiveAt(uint64_t time) {
    EXPECT_EQ(CatchUp(time), Outcome::kDone);
    std::map<uint64_t, uint64_t> found;
    live_.ForEach([&found](const LiveTensors::Tensor& tensor) {
      EXPECT_EQ(tensor.size, 512u);
      EXPECT_EQ(tensor.stack, 7u);
      EXPECT_EQ(tensor.device, 1u << 8);
      found[tensor.key] = tensor.time;
    });
    return found;
  }

  using Live = std::map<uint64_t, uint64_t>;

  log::LogFile file_;
  LiveTensors live_;
};

TEST_F(LiveTensorsTest, ABatchThatIsNotFullCounts) {
  Recorder thread(live_, file_, 1);
  thread.Alloc(0x1000, 10);
  thread.Alloc(0x2000, 11);
  thread.Free(0x1000, 12);
  EXPECT_EQ(LiveAt(20), (Live{{0x2000, 11}}));
}

TEST_F(LiveTensorsTest, AnEventOfALaterTimeDoesNotCountYet) {
  Recorder thread(live_, file_, 1);
  thread.Alloc(0x1000, 10);
  thread.Free(0x1000, 30);
  thread.Alloc(0x2000, 31);
  EXPECT_EQ(LiveAt(20), (Live{{0x1000, 10}}));
  EXPECT_EQ(LiveAt(40), (Live{{0x2000, 31}}));
}

// Three threads in turn own one address; they settle in each order.
TEST_F(LiveTensorsTest, TheLatestOfAllThreadsCountsInWhateverOrderTheySettle) {
  for (int order = 0; order < 27; ++order) {
    LiveTensors live;
    Recorder first(live, file_, 1);
    Recorder second(live, file_, 2);
    Recorder third(live, file_, 3);
    Recorder* const threads[] = {&first, &second, &third};
    first.Alloc(0x1000, 10);
    second.Free(0x1000, 11);
    second.Alloc(0x1000, 12);
    third.Free(0x1000, 13);
    first.Alloc(0x1000, 14);
    second.Free(0x1000, 15);
    for (int i = order; i > 0; i /= 3) threads[i % 3]->Settle();
    live.LockAll();
    EXPECT_EQ(live.CatchUp(20), Outcome::kDone);
    live.ForEach([order](const LiveTensors::Tensor&) {
      ADD_FAILURE() << "in order " << order;
    });
    live.UnlockAll();
  }
}

// Its batch is still at hand when it has been counted already.
TEST_F(LiveTensorsTest, WhatWasCountedInABatchIsNotCountedAgainWhenItIsFull) {
  Recorder first(live_, file_, 1);
  Recorder second(live_, file_, 2);
  first.Alloc(0x1000, 10);
  second.Free(0x1000, 11);
  second.Settle();
  EXPECT_EQ(LiveAt(20), Live{});
  first.Settle();
  EXPECT_EQ(LiveAt(30), Live{}) << "the freed block is back";
}

TEST_F(LiveTensorsTest, AThreadBetweenItsTimeAndItsRecordIsWaitedFor) {
  Recorder recorder(live_, file_, static_cast<uint32_t>(syscall(SYS_gettid)));
  recorder.Alloc(0x1000, 10);  // a batch is open
  recorder.log().BeginEvent();
  const uint64_t time = runtime::EventNow();
  std::atomic<bool> caught_up{false};
  std::atomic<bool> started{false};
  bool was_early = false;
  std::thread checkpoint([&] {
    live_.LockAll();
    const uint64_t now = runtime::EventNow();
    started = true;
    EXPECT_EQ(live_.CatchUp(now), Outcome::kDone);
    caught_up = true;
    live_.UnlockAll();
  });
  while (!started) std::this_thread::yield();
  // Long enough for one that did not wait.
  while (runtime::EventNow() < time + 20'000'000) std::this_thread::yield();
  was_early = caught_up;
  recorder.Alloc(0x2000, time);
  checkpoint.join();
  EXPECT_FALSE(was_early);
  EXPECT_EQ(LiveAt(runtime::EventNow()), (Live{{0x1000, 10}, {0x2000, time}}));
}

TEST_F(LiveTensorsTest, AThreadThatIsStuckIsNotWaitedForForEver) {
  Recorder stuck(live_, file_, 1);
  Recorder other(live_, file_, 2);
  other.Alloc(0x1000, 10);
  stuck.log().AdoptBy(static_cast<uint32_t>(syscall(SYS_gettid)));  // it lives
  stuck.log().BeginEvent();
  EXPECT_EQ(CatchUp(runtime::EventNow()), Outcome::kBusy);
  stuck.log().EndEvent();
  EXPECT_EQ(LiveAt(runtime::EventNow()), (Live{{0x1000, 10}}));
}

TEST_F(LiveTensorsTest, AThreadThatEndedInAnEventIsNotWaitedForAgain) {
  Recorder other(live_, file_, 1);
  other.Alloc(0x1000, 10);
  std::unique_ptr<Recorder> gone;
  std::thread([&] {
    gone = std::make_unique<Recorder>(
        live_, file_, static_cast<uint32_t>(syscall(SYS_gettid)));
    gone->log().BeginEvent();
  }).join();
  EXPECT_EQ(LiveAt(runtime::EventNow()), (Live{{0x1000, 10}}));
  EXPECT_FALSE(gone->log().IsInEvent());
}

TEST_F(LiveTensorsTest, AChildOfForkStartsAnewWhateverItsParentHeld) {
  Recorder parents(live_, file_, 1);
  parents.Alloc(0x1000, 10);
  live_.LockAll();
  live_.Reset();
  Recorder childs(live_, file_, 2);
  childs.Alloc(0x2000, 20);
  EXPECT_EQ(LiveAt(30), (Live{{0x2000, 20}}));
}

TEST_F(LiveTensorsTest, AnEventTheLogHasNoRoomForCountsToo) {
  Recorder thread(live_, file_, 1);
  {
    const std::lock_guard lock(thread);
    EXPECT_TRUE(live_.Add(thread.changes(), {.key = 0x1000,
                                             .size = 512,
                                             .time = 10,
                                             .stack = 7,
                                             .device = 1 << 8,
                                             .thread = 1}));
  }
  EXPECT_EQ(LiveAt(20), (Live{{0x1000, 10}}));
}

// A million blocks that come and go must not become a million changes.
TEST_F(LiveTensorsTest, ChangesAreTakenInWhenTheyAreMany) {
  Recorder thread(live_, file_, 1);
  int taken_in = 0;
  for (uint64_t i = 1; i <= 1'000'000; ++i) {
    thread.Alloc(i << 9, 2 * i);
    thread.Free(i << 9, 2 * i + 1);
    if (i % 32 == 0 && live_.ShouldCatchUp(thread.changes())) {
      ++taken_in;
      EXPECT_EQ(LiveAt(2 * i + 1), Live{});
      EXPECT_FALSE(live_.ShouldCatchUp(thread.changes()));
    }
  }
  EXPECT_GE(taken_in, 10);
  EXPECT_LE(taken_in, 16);
}

TEST_F(LiveTensorsTest, SaysAboutHowManyAreLive) {
  Recorder first(live_, file_, 1);
  Recorder second(live_, file_, 2);
  for (uint64_t i = 1; i <= 1000; ++i) first.Alloc(i << 9, i);
  first.Settle();
  EXPECT_EQ(live_.size(), 1000u);
  EXPECT_EQ(LiveAt(2000).size(), 1000u);
  for (uint64_t i = 1; i <= 400; ++i) second.Free(i << 9, 3000 + i);
  second.Settle();
  EXPECT_EQ(live_.size(), 600u);
  EXPECT_EQ(LiveAt(4000).size(), 600u);
  EXPECT_EQ(live_.size(), 600u);
}

}  // namespace
}  // namespace dstrace::capture
