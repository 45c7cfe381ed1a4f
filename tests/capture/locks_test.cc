// SPDX-License-Identifier: Apache-2.0
//
// Which locks an event takes. Built with held_locks/preload/runtime/mutex.h in
// place of our mutex: all locks can be held at once, and counted.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "preload/capture/record_tensor.h"
#include "preload/capture/recorder.h"
#include "preload/runtime/config.h"
#include "preload/runtime/guard.h"
#include "preload/runtime/mutex.h"

namespace dstrace::capture {
namespace {

using runtime::AllLocks;

constexpr TorchDevice kCuda0{.type = 1, .index = 0};
constexpr int kEvents = 1000;  // a few bytes each: one chunk holds them

void Report(int64_t size, uint64_t total) {
  const runtime::Guard guard;
  RecordTensor(nullptr, 0x7f0000000000, size, total, 0, kCuda0);
}

[[gnu::noinline]] void Hits(int events) {
  for (int i = 0; i < events; i += 2) {
    Report(512, 512);
    Report(-512, 0);
  }
}
[[gnu::noinline]] void Miss() {
  Report(512, 512);
  asm volatile("");  // no tail call: another stack than those above
}

void WaitUntil(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::yield();
}

class Locks : public testing::Test {
 protected:
  Locks() {
    char folder[] = "/tmp/dstrace_locks_XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~Locks() override { std::filesystem::remove_all(folder_); }

  // Exit status of `body` in a process of its own; -1 where it was killed, in
  // the end by its alarm.
  int Record(const std::function<int()>& body, const char* limit = nullptr) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      setenv("DSTRACE_OUTPUT", (folder_ + "/run.pb").c_str(), 1);
      if (limit != nullptr) setenv("DSTRACE_LOG_LIMIT", limit, 1);
      runtime::ReadConfig();
      Hits(kEvents);  // opens file and chunk, learns the stacks
      _exit(body());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string folder_;
};

TEST_F(Locks, AHitFinishesWhileAnotherThreadHoldsEveryLock) {
  EXPECT_EQ(Record([] {
              AllLocks::shut = true;
              Hits(kEvents);
              return AllLocks::waiting.load();
            }),
            0);
}

// What the test above would look like if it failed.
TEST_F(Locks, AMissWaitsForALockAndGoesOn) {
  EXPECT_EQ(Record([] {
              std::atomic<bool> done{false};
              AllLocks::shut = true;
              std::thread other([&done] {
                Miss();
                done = true;
              });
              WaitUntil([] { return AllLocks::waiting == 1; });
              if (done) return 1;
              AllLocks::shut = false;
              other.join();
              return done ? 0 : 2;
            }),
            0);
}

TEST_F(Locks, AHitTakesNone) {
  EXPECT_EQ(Record([] {
              const uint64_t before = AllLocks::taken;
              Hits(kEvents);
              return static_cast<int>(AllLocks::taken - before);
            }),
            0);
}

// Its own, when a batch of 64 is full: what it did then goes where a checkpoint
// finds it.
TEST_F(Locks, InAFileWithALimitOnlyAFullBatchTakesSome) {
  EXPECT_EQ(
      Record(
          [] {
            int events_with_lock = 0;
            for (int i = 0; i < kEvents; i += 2) {
              const uint64_t before = AllLocks::taken;
              Hits(2);
              events_with_lock += AllLocks::taken != before;
            }
            return events_with_lock <= kEvents / 64 + 1 ? 0 : events_with_lock;
          },
          "4MiB"),
      0);
}

TEST_F(Locks, InAFileWithALimitTooAHitFinishesWhileEveryLockIsHeld) {
  EXPECT_EQ(Record(
                [] {
                  uint64_t before = 0;
                  do {
                    before = AllLocks::taken;
                    Hits(2);
                  } while (AllLocks::taken == before);  // to a new batch
                  AllLocks::shut = true;
                  Hits(60);
                  return AllLocks::waiting.load();
                },
                "4MiB"),
            0);
}

TEST_F(Locks, OnlyAChunkThatIsFullTakesOne) {
  EXPECT_EQ(Record([] {
              int batches_with_lock = 0;
              for (int batch = 0; batch < 100; ++batch) {
                const uint64_t before = AllLocks::taken;
                Hits(kEvents);
                batches_with_lock += AllLocks::taken != before;
              }
              // 1e5 events of 3 to 8 bytes in chunks of 64 KiB.
              return batches_with_lock >= 4 && batches_with_lock <= 13
                         ? 0
                         : 100 + batches_with_lock;
            }),
            0);
}

}  // namespace
}  // namespace dstrace::capture
