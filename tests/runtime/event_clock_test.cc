// SPDX-License-Identifier: Apache-2.0
//
// Against the machine's own clocks. Where its counter cannot be used, the
// clock is clock_gettime and the same holds.
#include "preload/runtime/event_clock.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "preload/runtime/clock.h"
#include "preload/runtime/fork_page.h"

namespace dstrace::runtime {
namespace {

// Nanoseconds that the two clocks may differ by: between two readings of one
// the other is read, and the line is right to well under this.
constexpr uint64_t kSlack = 20'000;
constexpr uint64_t kMillisecond = 1'000'000;

// How far EventNow() lies outside of two readings of CLOCK_MONOTONIC around it.
uint64_t Error() {
  const uint64_t before = MonotonicNow();
  const uint64_t now = EventNow();
  const uint64_t after = MonotonicNow();
  return now < before ? before - now : now > after ? now - after : 0;
}

void Spend(uint64_t ns) {
  for (const uint64_t end = MonotonicNow() + ns; MonotonicNow() < end;) {
    EventNow();
  }
}

uint32_t Generation() { return Hot().clock_generation.load(); }

// The one in use; only to be changed while no other thread runs.
ClockLine& Line() { return Hot().clock[Generation() % 2]; }

class EventClockTest : public ::testing::Test {
 protected:
  EventClockTest() {
    StartEventClock();
    Spend(100 * kMillisecond);  // a line exists, where there can be one
  }
  static bool IsCounting() { return Line().scale.load() != 0; }
};

TEST_F(EventClockTest, FollowsTheKernelsClock) {
  uint64_t worst = 0;
  for (const uint64_t end = MonotonicNow() + 600 * kMillisecond;
       MonotonicNow() < end;) {
    worst = std::max(worst, Error());
  }
  EXPECT_LE(worst, kSlack);
}

TEST_F(EventClockTest, ContinuesItsLineAndNeverGoesBack) {
  const uint32_t before = Generation();
  uint64_t last = 0;
  for (const uint64_t end = MonotonicNow() + 600 * kMillisecond; last < end;) {
    const uint64_t now = EventNow();
    ASSERT_GE(now, last);
    last = now;
  }
  if (IsCounting()) {
    EXPECT_GE(Generation(), before + 2);
    EXPECT_LE(Generation(), before + 30) << "a line is for 0.1 s";
  }
}

// Each thread stamps when the other one's stamp is there: stamps order what
// happened in different threads, across new lines too.
TEST_F(EventClockTest, OrdersWhatHappenedInDifferentThreads) {
  std::atomic<uint64_t> turn{0};
  std::atomic<uint64_t> stamp{0};
  std::atomic<bool> in_order{true};
  constexpr uint64_t kTurns = 20'000;
  const auto play = [&](uint64_t side) {
    for (uint64_t mine = side; mine < kTurns; mine += 2) {
      while (turn.load(std::memory_order_acquire) != mine) {
        std::this_thread::yield();
      }
      const uint64_t now = EventNow();
      // Two generations may differ by what the line's inclination makes of the
      // time it took to publish it.
      if (now + 1000 < stamp.load(std::memory_order_relaxed)) in_order = false;
      stamp.store(now, std::memory_order_relaxed);
      turn.store(mine + 1, std::memory_order_release);
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_TRUE(in_order);
}

TEST_F(EventClockTest, FindsBackFromALineThatIsFarOff) {
  if (!IsCounting()) GTEST_SKIP() << "no counter";
  Line().base_ns.fetch_add(1'000 * kMillisecond);  // as after a suspend
  EXPECT_GE(Error(), 900 * kMillisecond);
  Spend(400 * kMillisecond);
  EXPECT_LE(Error(), kSlack);
  Spend(100 * kMillisecond);
  EXPECT_TRUE(IsCounting()) << "it has a line again";
}

TEST_F(EventClockTest, BeginsAnewAfterALongPause) {
  if (!IsCounting()) GTEST_SKIP() << "no counter";
  Line().base_ticks.fetch_sub(uint64_t{1} << 33);
  EXPECT_LE(Error(), kSlack);
}

TEST_F(EventClockTest, IsTheKernelsWhereTheCounterIsNotTrusted) {
  g_hot_page.page.clock.usable.store(false);
  Line().base_ticks.store(0);
  Line().scale.store(0);
  for (int i = 0; i < 1000; ++i) ASSERT_LE(Error(), 0u);
}

TEST_F(EventClockTest, AForkedChildFindsNoLineAndTheRightTime) {
  ForkPage fork_page;
  fork_page.Arm();
  if (!fork_page.wipes()) GTEST_SKIP() << "no MADV_WIPEONFORK";
  const pid_t child = fork();
  if (child == 0) {
    _exit(fork_page.IsChild() && Generation() == 0 && Error() <= kSlack ? 0
                                                                        : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(fork_page.IsChild());
}

}  // namespace
}  // namespace dstrace::runtime
