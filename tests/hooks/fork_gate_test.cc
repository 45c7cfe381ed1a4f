// SPDX-License-Identifier: Apache-2.0
#include "preload/runtime/fork_gate.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

namespace {

using dstrace::runtime::ForkGate;

// What the child finds: 0 open, 1 closed for good.
int ChildFinds() {
  ForkGate::CloseForFork();
  const pid_t child = fork();
  if (child == 0) {
    ForkGate::AdoptChild();
    const ForkGate::Visit visit;
    if (visit.entered() == ForkGate::closed_for_good()) _exit(2);
    _exit(ForkGate::closed_for_good() ? 1 : 0);
  }
  ForkGate::OpenInParent();
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

TEST(ForkGate, IsOpenAgainInParentAndChild) {
  EXPECT_EQ(ChildFinds(), 0);
  const ForkGate::Visit visit;
  EXPECT_TRUE(visit.entered());
}

TEST(ForkGate, TurnsAwayWhoWouldUnwindMeanwhile) {
  ForkGate::CloseForFork();
  const ForkGate::Visit visit;
  ForkGate::OpenInParent();
  EXPECT_FALSE(visit.entered());
}

TEST(ForkGate, LetsAPatientThreadInOnceItIsOpen) {
  ForkGate::CloseForFork();
  std::latch started(1);
  bool entered = false;
  std::thread patient([&] {
    started.count_down();
    const ForkGate::Visit visit(ForkGate::Patience::kSome);
    entered = visit.entered();
  });
  started.wait();
  ForkGate::OpenInParent();
  patient.join();
  EXPECT_TRUE(entered);
}

TEST(ForkGate, StaysClosedInTheChildOfAThreadThatDoesNotLeave) {
  std::latch inside(1), done(1);
  std::thread holder([&] {
    const ForkGate::Visit visit;
    inside.count_down();
    done.wait();
  });
  inside.wait();
  EXPECT_EQ(ChildFinds(), 1);
  done.count_down();
  holder.join();
  EXPECT_EQ(ChildFinds(), 0);  // the parent's gate is as before
}

// `locked` stands for the unwinder's lock: held by whoever is inside.
TEST(ForkGate, NobodyIsInsideWhileItIsClosed) {
  constexpr int kThreads = 4, kForks = 2000;
  std::atomic<int> locked{0}, seen{0}, visits{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        const ForkGate::Visit visit;
        if (!visit.entered()) continue;
        // relaxed: the gate alone must keep both sides apart.
        locked.fetch_add(1, std::memory_order_relaxed);
        visits.fetch_add(1, std::memory_order_relaxed);
        locked.fetch_sub(1, std::memory_order_relaxed);
      }
    });
  }
  // On one busy core the forks could be over before a thread has begun.
  while (visits.load() == 0) std::this_thread::yield();
  for (int i = 0; i < kForks; ++i) {
    ForkGate::CloseForFork();
    seen.fetch_add(locked.load(std::memory_order_relaxed));
    ForkGate::OpenInParent();
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen.load(), 0);
  EXPECT_GT(visits.load(), 0);
}

}  // namespace
