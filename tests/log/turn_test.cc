// SPDX-License-Identifier: Apache-2.0
//
// A process is killed at each system call with which a full chunk moves to its
// place in the file, before it, in its middle and after it: what was committed
// is in the file, once.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "preload/log/log_file.h"
#include "proto/trace.pb.h"

namespace {

enum class Moment { kNever, kBefore, kMiddle, kAfter };
Moment g_moment = Moment::kNever;
int g_calls_left = 0;

ssize_t Write(int fd, const void* from, size_t bytes, off_t offset) {
  return syscall(SYS_pwrite64, fd, from, bytes, offset);
}

}  // namespace

// In front of libc's.
extern "C" ssize_t pwrite(int fd, const void* from, size_t bytes,
                          off_t offset) {
  if (g_moment == Moment::kNever || --g_calls_left != 0) {
    return Write(fd, from, bytes, offset);
  }
  const size_t done = g_moment == Moment::kBefore   ? 0
                      : g_moment == Moment::kMiddle ? bytes / 2
                                                    : bytes;
  if (done != 0) Write(fd, from, done, offset);
  raise(SIGKILL);
  return -1;
}

namespace dstrace::log {
namespace {

class TurnTest : public testing::Test {
 protected:
  TurnTest() {
    char folder[] = "/tmp/dstrace_turn_XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/run.pb";
  }
  ~TurnTest() override { std::filesystem::remove_all(folder_); }

  proto::TraceFile Read() const {
    std::ifstream in(path_, std::ios::binary);
    std::string bytes(std::filesystem::file_size(path_), '\0');
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    proto::TraceFile file;
    EXPECT_TRUE(file.ParseFromString(bytes)) << bytes.size() << " bytes";
    return file;
  }

  // The committed bytes of each chunk, of those of one number the longest.
  std::map<uint32_t, std::string> Payloads() const {
    std::map<uint32_t, std::string> found;
    const proto::TraceFile file = Read();
    for (const proto::Chunk& chunk : file.chunk()) {
      const std::string bytes = chunk.payload().substr(0, chunk.committed());
      std::string& known = found[chunk.sequence()];
      EXPECT_TRUE(known.empty() || bytes.empty() || known == bytes)
          << "two chunks of number " << chunk.sequence();
      if (known.size() < bytes.size()) known = bytes;
    }
    return found;
  }

  // Runs `body` in a child; whether it was killed.
  static bool IsKilled(const std::function<void()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      body();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << status;
    return WIFSIGNALED(status);
  }

  std::string folder_;
  std::string path_;
};

void Fill(uint8_t* chunk, char byte) {
  std::memset(chunk + wire::kPayloadOffset, byte, wire::kPayloadBytes);
  std::atomic_ref<uint32_t>(
      *reinterpret_cast<uint32_t*>(chunk + wire::kCommittedOffset))
      .store(wire::kPayloadBytes, std::memory_order_release);
}

std::string Full(char byte) { return std::string(wire::kPayloadBytes, byte); }

TEST_F(TurnTest, TheNextChunkBeginsEmptyInTheSameMemory) {
  LogFile log;
  ASSERT_EQ(log.Open(path_.c_str(), {}), OpenResult::kOk);
  uint8_t* const chunk = log.OpenChunk(7, 1000);
  Fill(chunk, 'a');
  std::memset(chunk + wire::kRecentOffset, 0xff, wire::kRecentBytes);
  ASSERT_TRUE(log.TurnChunk(chunk, 2000, 8, 3000));

  const proto::TraceFile file = Read();
  ASSERT_EQ(file.chunk_size(), 2);
  const proto::Chunk& now = file.chunk(0);
  EXPECT_EQ(now.thread(), 8u);
  EXPECT_EQ(now.sequence(), 1u);
  EXPECT_EQ(now.first_time(), 3000u);
  EXPECT_EQ(now.last_time(), 0u);
  EXPECT_EQ(now.committed(), 0u);
  EXPECT_EQ(now.recent(), std::string(wire::kRecentBytes, '\0'))
      << "a slot of the old chunk would be taken for one of the new";
  const proto::Chunk& old = file.chunk(1);
  EXPECT_EQ(old.thread(), 7u);
  EXPECT_EQ(old.sequence(), 0u);
  EXPECT_EQ(old.first_time(), 1000u);
  EXPECT_EQ(old.last_time(), 2000u);
  EXPECT_EQ(old.payload().substr(0, old.committed()), Full('a'));
}

TEST_F(TurnTest, NothingCommittedIsLostOrThereTwiceWhereverItIsKilled) {
  bool killed = true;
  int call = 0;
  while (killed) {
    ++call;
    for (const Moment moment :
         {Moment::kBefore, Moment::kMiddle, Moment::kAfter}) {
      std::filesystem::remove(path_);
      killed = IsKilled([&] {
        LogFile log;
        if (log.Open(path_.c_str(), {}) != OpenResult::kOk) _exit(1);
        uint8_t* const chunk = log.OpenChunk(1, 10);
        Fill(chunk, 'a');
        if (!log.TurnChunk(chunk, 20, 1, 30)) _exit(2);
        Fill(chunk, 'b');
        g_moment = moment;
        g_calls_left = call;
        if (!log.TurnChunk(chunk, 40, 1, 50)) _exit(3);
        g_moment = Moment::kNever;
        Fill(chunk, 'c');
      });
      const auto found = Payloads();
      EXPECT_EQ(found.at(0), Full('a')) << "call " << call;
      EXPECT_EQ(found.at(1), Full('b')) << "call " << call;
      EXPECT_EQ(found.size(), killed ? 2u : 3u) << "call " << call;
    }
  }
  EXPECT_GE(call, 4) << "the chunk was not written in three calls";
}

TEST_F(TurnTest, WithoutASharedMappingAChunkIsInTheFileOnceItIsFull) {
  LogFile log;
  ASSERT_EQ(log.Open(path_.c_str(), {.use_mmap = false}), OpenResult::kOk);
  uint8_t* const chunk = log.OpenChunk(1, 10);
  Fill(chunk, 'a');
  ASSERT_TRUE(log.TurnChunk(chunk, 20, 1, 30));
  Fill(chunk, 'b');
  ASSERT_EQ(Read().chunk_size(), 1);
  EXPECT_EQ(Read().chunk(0).last_time(), 20u);
  log.CloseChunk(chunk, 40);
  const auto found = Payloads();
  EXPECT_EQ(found.at(0), Full('a'));
  EXPECT_EQ(found.at(1), Full('b'));
}

TEST_F(TurnTest, AFullDiskLeavesTheChunkAsItWas) {
  const bool killed = IsKilled([&] {
    const rlimit limit{2 * wire::kChunkBytes + 100, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    LogFile log;
    if (log.Open(path_.c_str(), {}) != OpenResult::kOk) _exit(1);
    uint8_t* const chunk = log.OpenChunk(1, 10);
    Fill(chunk, 'a');
    if (!log.TurnChunk(chunk, 20, 1, 30)) _exit(2);
    Fill(chunk, 'b');
    if (log.TurnChunk(chunk, 40, 1, 50)) _exit(3);
    if (!log.disk_full()) _exit(4);
  });
  EXPECT_FALSE(killed);
  const auto found = Payloads();
  EXPECT_EQ(found.at(0), Full('a'));
  EXPECT_EQ(found.at(1), Full('b'));
  EXPECT_EQ(Read().chunk(0).last_time(), 0u) << "it is still open";
}

}  // namespace
}  // namespace dstrace::log
