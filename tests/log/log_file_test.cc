// SPDX-License-Identifier: Apache-2.0
#include "preload/log/log_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <latch>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "proto/trace.pb.h"
#include "tests/log/log_fixture.h"

namespace dstrace::log {
namespace {

using LogFileTest = LogFixture;

void Append(uint8_t* chunk, uint32_t* used, uint8_t byte) {
  chunk[wire::kPayloadOffset + *used] = byte;
  ++*used;
  std::memcpy(chunk + wire::kCommittedOffset, used, sizeof *used);
}

TEST_F(LogFileTest, IsAValidMessageAfterEveryStep) {
  LogFile log;
  ASSERT_EQ(log.Open(path_.c_str(), {}), OpenResult::kOk);
  EXPECT_EQ(Read().chunk_size(), 0);
  std::vector<uint8_t*> chunks;
  for (int i = 0; i < 40; ++i) {
    chunks.push_back(log.OpenChunk(7, 1000));
    ASSERT_NE(chunks.back(), nullptr);
    EXPECT_EQ(Read().chunk_size(), i + 1);
  }
  for (uint8_t* chunk : chunks) log.CloseChunk(chunk, 2000);
  log.Trim();
  const proto::TraceFile file = Read();
  EXPECT_EQ(file.chunk_size(), 40);
  EXPECT_EQ(file.chunk(39).last_time(), 2000u);
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 40 * static_cast<off_t>(wire::kChunkBytes));
  EXPECT_LE(info.st_blocks * 512, info.st_size + 65536)
      << "space asked for ahead was not given back";
}

TEST_F(LogFileTest, NeverOpensAnExistingFile) {
  std::ofstream(path_) << "precious";
  LogFile log;
  EXPECT_EQ(log.Open(path_.c_str(), {}), OpenResult::kExists);
  std::ifstream in(path_);
  std::string text;
  in >> text;
  EXPECT_EQ(text, "precious");
}

TEST_F(LogFileTest, SaysWhyItCannotOpen) {
  LogFile log;
  errno = 0;
  EXPECT_EQ(log.Open("/nonexistent/run.pb", {}), OpenResult::kFailed);
  EXPECT_EQ(errno, ENOENT);
}

TEST_F(LogFileTest, HandsEachChunkToOneThreadOnly) {
  LogFile log;
  ASSERT_EQ(log.Open(path_.c_str(), {}), OpenResult::kOk);
  constexpr int kThreads = 8;
  constexpr int kChunks = 50;
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&log, &start, t] {
      start.arrive_and_wait();
      for (int i = 0; i < kChunks; ++i) {
        uint8_t* chunk = log.OpenChunk(static_cast<uint32_t>(t), 1);
        ASSERT_NE(chunk, nullptr);
        uint32_t used = 0;
        for (int k = 0; k < 100; ++k) {
          Append(chunk, &used, static_cast<uint8_t>(t));
        }
        log.CloseChunk(chunk, 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  const proto::TraceFile file = Read();
  ASSERT_EQ(file.chunk_size(), kThreads * kChunks);
  std::set<uint32_t> sequences;
  std::vector<int> per_thread(kThreads);
  for (const proto::Chunk& chunk : file.chunk()) {
    sequences.insert(chunk.sequence());
    ++per_thread[chunk.thread()];
    ASSERT_EQ(chunk.committed(), 100u);
    EXPECT_EQ(chunk.payload().substr(0, 100),
              std::string(100, static_cast<char>(chunk.thread())));
  }
  EXPECT_EQ(sequences.size(), static_cast<size_t>(kThreads * kChunks));
  for (const int count : per_thread) EXPECT_EQ(count, kChunks);
}

TEST_F(LogFileTest, AFileSizeLimitIsAnErrorAndNotASignal) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{3 * wire::kChunkBytes + 100, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    LogFile log;
    if (log.Open(path_.c_str(), {}) != OpenResult::kOk) _exit(1);
    for (int i = 0; i < 3; ++i) {
      if (log.OpenChunk(1, 1) == nullptr) _exit(2);
    }
    if (log.OpenChunk(1, 1) != nullptr) _exit(3);
    _exit(log.refusal() == EFBIG ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(Read().chunk_size(), 3);
}

TEST_F(LogFileTest, SpaceThatWasRefusedIsAskedForAgainLaterAndNotAtOnce) {
  constexpr uint64_t kPause = 100'000'000;
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit{wire::kChunkBytes + 100, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    LogFile log;
    if (log.Open(path_.c_str(), {}) != OpenResult::kOk) _exit(1);
    if (log.OpenChunk(1, 1) == nullptr) _exit(2);
    if (log.OpenChunk(1, 10) != nullptr) _exit(3);
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
    if (log.OpenChunk(1, 9 + kPause) != nullptr) _exit(4);
    if (log.refusal() != EFBIG) _exit(5);
    if (log.OpenChunk(1, 10 + kPause) == nullptr) _exit(6);
    _exit(log.refusal() == 0 ? 0 : 7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
}

// A disk that is full before there is a checkpoint, which has no place either.
TEST_F(LogFileTest, ACheckpointThatFailedIsTriedAgainLaterAndNotAtOnce) {
  constexpr uint64_t kSecond = 1'000'000'000;
  int tries = 0;
  const Checkpointer checkpointer{.context = &tries,
                                  .size = [](void*) noexcept { return 1u; },
                                  .write =
                                      [](void* context, uint64_t*) noexcept {
                                        ++*static_cast<int*>(context);
                                        return false;
                                      },
                                  .publish = [](void*, uint64_t) noexcept {}};
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit limit = before;
  limit.rlim_cur = 30 * wire::kChunkBytes;
  setrlimit(RLIMIT_FSIZE, &limit);
  LogFile log;
  ASSERT_EQ(log.Open(path_.c_str(), {.limit_bytes = 1000 * wire::kChunkBytes,
                                     .checkpointer = checkpointer}),
            OpenResult::kOk);
  uint8_t* const chunk = log.OpenChunk(1, kSecond);
  ASSERT_NE(chunk, nullptr);
  int turned = 0;
  while (log.TurnChunk(chunk, kSecond, 1, kSecond)) ++turned;
  EXPECT_EQ(turned, 29);
  EXPECT_EQ(tries, 1);
  for (uint64_t i = 0; i < 1000; ++i) {  // for half a second
    EXPECT_FALSE(log.TurnChunk(chunk, kSecond, 1, kSecond + i * 500'000));
  }
  EXPECT_EQ(tries, 1);
  EXPECT_FALSE(log.TurnChunk(chunk, kSecond, 1, 3 * kSecond));
  EXPECT_EQ(tries, 2);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(log.TurnChunk(chunk, kSecond, 1, 4 * kSecond));
}

TEST_F(LogFileTest, WithoutMmapOnlyClosedChunksAreInTheFile) {
  LogFile log;
  ASSERT_EQ(log.Open(path_.c_str(), {.use_mmap = false}), OpenResult::kOk);
  EXPECT_FALSE(log.crash_proof());
  uint8_t* first = log.OpenChunk(1, 10);
  uint8_t* second = log.OpenChunk(2, 20);
  uint32_t used = 0;
  Append(second, &used, 42);
  EXPECT_EQ(Read().chunk_size(), 0);
  log.CloseChunk(second, 30);
  ASSERT_EQ(Read().chunk_size(), 1);
  EXPECT_EQ(Read().chunk(0).thread(), 2u);
  EXPECT_EQ(Read().chunk(0).committed(), 1u);
  log.CloseChunk(first, 40);
  EXPECT_EQ(Read().chunk_size(), 2);
}

TEST_F(LogFileTest, LeavesAForeignFileUnderItsOldNumberAlone) {
  LogFile log;
  ASSERT_EQ(log.Open(path_.c_str(), {}), OpenResult::kOk);
  ASSERT_NE(log.OpenChunk(1, 1), nullptr);
  const std::string other = folder_ + "/other";
  // The program closes every descriptor and opens its own file.
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  const int fd = open(other.c_str(), O_RDWR | O_CREAT, 0644);
  for (int number = 256; number < 300; ++number) dup2(fd, number);

  EXPECT_EQ(log.OpenChunk(1, 2), nullptr);
  log.Trim();

  struct stat info;
  ASSERT_EQ(stat(other.c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 0);
  for (int number = 256; number < 300; ++number) close(number);
  close(fd);
  unlink(other.c_str());
}

// The parent reads the file at moments the child does not choose.
TEST_F(LogFileTest, IsValidAtAnyInstantForAnotherProcess) {
  constexpr int kChunks = 300;
  const pid_t child = fork();
  if (child == 0) {
    LogFile log;
    if (log.Open(path_.c_str(), {}) != OpenResult::kOk) _exit(1);
    for (int n = 0; n < kChunks; ++n) {
      uint8_t* chunk = log.OpenChunk(1, 1);
      if (chunk == nullptr) _exit(2);
      uint32_t used = 0;
      for (int i = 0; i < 64; ++i) Append(chunk, &used, 7);
      log.CloseChunk(chunk, 2);
    }
    _exit(0);
  }
  int last = 0;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (access(path_.c_str(), F_OK) != 0) continue;
    const proto::TraceFile file = Read();
    EXPECT_GE(file.chunk_size(), last);
    last = file.chunk_size();
  }
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Read().chunk_size(), kChunks);
}

}  // namespace
}  // namespace dstrace::log
