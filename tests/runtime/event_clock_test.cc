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

uint32_t Generation() { return Hot().clock_generation.load(); }

// The one in use; only to be changed while no other thread runs.
ClockLine& Line() { return Hot().clock[Generation() % 2]; }
bool IsCounting() { return Line().scale.load() != 0; }

// Asks for the time until `is_done`. Not for so and so long: the machine may
// be busy with something else, and what is made is made by asking. False: not
// even in a time that must do.
template <typename IsDone>
bool AskUntil(IsDone is_done) {
  for (const uint64_t end = MonotonicNow() + 20'000 * kMillisecond;
       MonotonicNow() < end;) {
    if (is_done()) return true;
    EventNow();
  }
  return false;
}
// Until the next line has been made, or this one given up.
bool AskForTheNextLine() {
  const uint32_t before = Generation();
  return AskUntil([&] { return Generation() != before; });
}

class EventClockTest : public ::testing::Test {
 protected:
  EventClockTest() {
    StartEventClock();
    const auto& usable = g_hot_page.page.clock.usable;
    EXPECT_TRUE(AskUntil([&] { return !usable.load() || IsCounting(); }));
  }
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
  const uint64_t start = MonotonicNow();
  const uint64_t deadline = start + 20'000 * kMillisecond;
  uint64_t last = 0;
  while (last < start + 600 * kMillisecond ||
         (IsCounting() && Generation() < before + 2 && last < deadline)) {
    const uint64_t now = EventNow();
    ASSERT_GE(now, last);
    last = now;
  }
  if (IsCounting()) {
    EXPECT_GE(Generation(), before + 2);
    EXPECT_LE(Generation() - before, (last - start) / (20 * kMillisecond))
        << "a line is for 0.1 s";
  }
}

// Each thread stamps when the other one's stamp is there: stamps order what
// happened in different threads, across new lines too.
TEST_F(EventClockTest, OrdersWhatHappenedInDifferentThreads) {
  std::atomic<uint64_t> turn{0};
  std::atomic<uint64_t> stamp{0};
  std::atomic<bool> in_order{true};
  std::atomic<bool> enough{false};
  const uint32_t before = Generation();
  const uint64_t deadline = MonotonicNow() + 20'000 * kMillisecond;
  const auto is_enough = [&](uint64_t turns) {
    return MonotonicNow() >= deadline ||
           (turns >= 20'000 && (!IsCounting() || Generation() >= before + 3));
  };
  const auto play = [&](uint64_t side) {
    for (uint64_t mine = side; side != 0 || !is_enough(mine); mine += 2) {
      while (turn.load(std::memory_order_acquire) != mine) {
        if (enough) return;
        std::this_thread::yield();
      }
      const uint64_t now = EventNow();
      // Two generations may differ by what the line's inclination makes of the
      // time it took to publish it.
      if (now + 1000 < stamp.load(std::memory_order_relaxed)) in_order = false;
      stamp.store(now, std::memory_order_relaxed);
      turn.store(mine + 1, std::memory_order_release);
    }
    enough = true;
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_GE(turn.load(), 100u);
  EXPECT_TRUE(in_order);
}

TEST_F(EventClockTest, FindsBackFromALineThatIsFarOff) {
  if (!IsCounting()) GTEST_SKIP() << "no counter";
  // As after a suspend. Seen where the line does not end in between, so a new
  // one, and again if this thread was kept from running for the rest of it.
  bool is_seen = false;
  for (int i = 0; i < 10 && !is_seen; ++i) {
    ASSERT_TRUE(AskForTheNextLine());
    ASSERT_TRUE(AskUntil(IsCounting));
    Line().base_ns.fetch_add(1'000 * kMillisecond);
    is_seen = Error() >= 900 * kMillisecond;
  }
  EXPECT_TRUE(is_seen);
  ASSERT_TRUE(AskForTheNextLine());
  EXPECT_LE(Error(), kSlack);
  EXPECT_TRUE(AskUntil(IsCounting)) << "it has a line again";
  EXPECT_LE(Error(), kSlack);
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
