// SPDX-License-Identifier: Apache-2.0
//
// A process is killed at each system call with which a full chunk moves to its
// place in the file, before it, after its first page, in its middle and after
// it: what was committed is in the file, once.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "preload/log/log_file.h"
#include "proto/trace.pb.h"
#include "tests/log/log_fixture.h"

namespace {

enum class Moment {
  kNever,
  kBefore,
  kFirstPage,
  kMiddle,
  kAfter,
  kFails,
  kShort
};
Moment g_moment = Moment::kNever;
int g_calls_left = 0;
long g_short = 0;  // bytes that one write does; negative: an errno

long Call(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  if (result < 0 && result > -4096) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}

std::string Joined(const iovec* parts, long count) {
  std::string bytes;
  for (const iovec& part : std::span(parts, static_cast<size_t>(count))) {
    bytes.append(static_cast<const char*>(part.iov_base), part.iov_len);
  }
  return bytes;
}

// How many of the bytes are written before the process is killed.
size_t Done(size_t bytes) {
  switch (g_moment) {
    case Moment::kFirstPage:
      return std::min<size_t>(bytes, 4096);
    case Moment::kMiddle:
      return bytes / 2;
    case Moment::kAfter:
      return bytes;
    default:
      return 0;
  }
}

// Whether this write is the one; if so, what happens.
bool IsMet(long fd, const iovec* parts, long count, long offset) {
  if (g_moment == Moment::kNever) return false;
  if (g_moment == Moment::kFails) return true;
  if (--g_calls_left != 0 || g_moment == Moment::kShort) return false;
  const std::string bytes = Joined(parts, count);
  const auto done = static_cast<long>(Done(bytes.size()));
  if (done != 0) {
    Call(SYS_pwrite64, fd, reinterpret_cast<long>(bytes.data()), done, offset,
         0, 0);
  }
  raise(SIGKILL);
  return true;
}

bool IsMet(long number, const long* argument) {
  const iovec one{reinterpret_cast<void*>(argument[1]),
                  static_cast<size_t>(argument[2])};
  if (number == SYS_pwrite64) return IsMet(argument[0], &one, 1, argument[3]);
  return number == SYS_pwritev &&
         IsMet(argument[0], reinterpret_cast<const iovec*>(argument[1]),
               argument[2], argument[3]);
}

// Whether this write is the one that does less than it was asked to.
bool EndsEarly(long number, const long* argument, long* written) {
  if (g_moment != Moment::kShort || g_calls_left != 0) return false;
  if (number != SYS_pwrite64 && number != SYS_pwritev) return false;
  --g_calls_left;
  if (g_short < 0) errno = static_cast<int>(-g_short);
  if (g_short <= 0) {
    *written = g_short < 0 ? -1 : 0;
    return true;
  }
  const std::string bytes =
      number == SYS_pwritev
          ? Joined(reinterpret_cast<const iovec*>(argument[1]), argument[2])
          : std::string(reinterpret_cast<const char*>(argument[1]),
                        static_cast<size_t>(argument[2]));
  *written = Call(
      SYS_pwrite64, argument[0], reinterpret_cast<long>(bytes.data()),
      std::min(g_short, static_cast<long>(bytes.size())), argument[3], 0, 0);
  return true;
}

}  // namespace

// In front of libc's. Like that one it takes six arguments however many were
// given, which AddressSanitizer minds.
extern "C" [[gnu::no_sanitize("address")]] long syscall(long number,
                                                        ...) noexcept {
  va_list list;
  va_start(list, number);
  long argument[6];
  for (long& value : argument) value = va_arg(list, long);
  va_end(list);
  if (IsMet(number, argument)) {
    errno = EIO;
    return -1;
  }
  long written = 0;
  if (EndsEarly(number, argument, &written)) return written;
  return Call(number, argument[0], argument[1], argument[2], argument[3],
              argument[4], argument[5]);
}

namespace dstrace::log {
namespace {

class TurnTest : public LogFixture {
 protected:
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
};

// Each byte of the payload another than its neighbours.
std::string Pattern() {
  std::string bytes(wire::kPayloadBytes, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * 7 + i / 251);
  }
  return bytes;
}

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
    for (const Moment moment : {Moment::kBefore, Moment::kFirstPage,
                                Moment::kMiddle, Moment::kAfter}) {
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
  EXPECT_GE(call, 4) << "the file did not grow, and then take the chunk in two";
}

TEST_F(TurnTest, AWriteThatEndsEarlyGoesOnWhereItEnded) {
  for (const long bytes : {-EINTR, 0, 3, 8, 100, 4096, 30000}) {
    for (int call = 1; call <= 3; ++call) {
      SCOPED_TRACE(testing::Message() << bytes << " in call " << call);
      std::filesystem::remove(path_);
      LogFile log;
      ASSERT_EQ(log.Open(path_.c_str(), {}), OpenResult::kOk);
      uint8_t* const chunk = log.OpenChunk(1, 10);
      Fill(chunk, 'a');
      const std::string payload = Pattern();
      std::memcpy(chunk + wire::kPayloadOffset, payload.data(), payload.size());
      g_short = bytes;
      g_calls_left = call;
      g_moment = Moment::kShort;
      constexpr uint64_t kLongAfter = 1'000'000'000;
      // A file that grew by half a page is cut: that is a refusal.
      const bool turned = log.TurnChunk(chunk, 20, 1, 30) ||
                          log.TurnChunk(chunk, 20, 1, 30 + kLongAfter);
      g_moment = Moment::kNever;
      ASSERT_TRUE(turned);
      EXPECT_EQ(Payloads().at(0), payload);
    }
  }
}

TEST_F(TurnTest, AWriteThatFailsCostsNoPlace) {
  LogFile log;
  ASSERT_EQ(log.Open(path_.c_str(), {}), OpenResult::kOk);
  uint8_t* const chunk = log.OpenChunk(1, 10);
  Fill(chunk, 'a');
  g_moment = Moment::kFails;
  constexpr uint64_t kLongAfter = 1'000'000'000;  // so that it is asked again
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_FALSE(log.TurnChunk(chunk, 20, 1, 30 + i * kLongAfter));
    EXPECT_EQ(log.refusal(), EIO);
  }
  g_moment = Moment::kNever;
  EXPECT_LE(std::filesystem::file_size(path_), 2 * wire::kChunkBytes);
  ASSERT_TRUE(log.TurnChunk(chunk, 20, 1, 30 + 100 * kLongAfter));
  EXPECT_EQ(Payloads().at(0), Full('a'));
}

TEST_F(TurnTest, AFileSizeLimitThatIsSetLaterIsAnErrorAndNotASignal) {
  const bool killed = IsKilled([&] {
    LogFile log;
    if (log.Open(path_.c_str(), {}) != OpenResult::kOk) _exit(1);
    uint8_t* const chunk = log.OpenChunk(1, 10);
    for (int i = 0; i < 5; ++i) {
      Fill(chunk, 'a');
      if (!log.TurnChunk(chunk, 20, 1, 30)) _exit(2);
    }
    Fill(chunk, 'b');
    const rlimit limit{100, RLIM_INFINITY};  // far below what is reserved
    setrlimit(RLIMIT_FSIZE, &limit);
    if (log.TurnChunk(chunk, 40, 1, 50)) _exit(3);
    log.CloseChunk(chunk, 60);
  });
  EXPECT_FALSE(killed);
  EXPECT_EQ(Payloads().at(5), Full('b'));
}

// As 0005 says: a disk that is full before the limit is the limit.
TEST_F(TurnTest, WithoutASharedMappingAFullDiskIsTheLimit) {
  const bool killed = IsKilled([&] {
    const rlimit limit{40 * wire::kChunkBytes + 100, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    LogFile log;
    const Checkpointer checkpointer{
        .context = &log,
        .size = [](void*) noexcept { return 1u; },
        .write =
            [](void* file, uint64_t* time) noexcept {
              static_cast<LogFile*>(file)->BeginCheckpoint();
              *time = 1;
              return true;
            },
        .publish = [](void*, uint64_t) noexcept {}};
    if (log.Open(path_.c_str(), {.use_mmap = false,
                                 .limit_bytes = 64 * wire::kChunkBytes,
                                 .checkpointer = checkpointer}) !=
        OpenResult::kOk) {
      _exit(1);
    }
    uint8_t* const chunk = log.OpenChunk(1, 10);
    int failed = 0;
    for (int i = 0; i < 500; ++i) {
      Fill(chunk, 'a');
      failed += !log.TurnChunk(chunk, 20, 1, 30);
    }
    if (failed > 0) _exit(2);
  });
  EXPECT_FALSE(killed);
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
    if (log.refusal() != EFBIG) _exit(4);
  });
  EXPECT_FALSE(killed);
  const auto found = Payloads();
  EXPECT_EQ(found.at(0), Full('a'));
  EXPECT_EQ(found.at(1), Full('b'));
  EXPECT_EQ(Read().chunk(0).last_time(), 0u) << "it is still open";
}

}  // namespace
}  // namespace dstrace::log
