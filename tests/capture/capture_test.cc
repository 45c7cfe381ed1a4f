// SPDX-License-Identifier: Apache-2.0
//
// The whole way from a recorder call to the bytes of the file. Each recording
// runs in a process of its own, since a process has one log.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <latch>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "preload/capture/record_tensor.h"
#include "preload/capture/recorder.h"
#include "preload/runtime/config.h"
#include "preload/runtime/guard.h"
#include "proto/trace.pb.h"

namespace dstrace::capture {
namespace {

constexpr TorchDevice kCuda0{.type = 1, .index = 0};

void Alloc(uint64_t address, int64_t size) {
  const runtime::Guard guard;
  RecordTensor(nullptr, address, size, 0, 0, kCuda0);
}

// What the records of a file amount to.
struct Trace {
  proto::Records all;  // every chunk's records, merged by libprotobuf
  std::map<uint32_t, int> chunks_by_thread;
  int chunks = 0;
};

Trace ReadTrace(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes(std::filesystem::file_size(path), '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  proto::TraceFile file;
  EXPECT_TRUE(file.ParseFromString(bytes)) << path;
  Trace trace;
  for (const proto::Chunk& chunk : file.chunk()) {
    ++trace.chunks;
    ++trace.chunks_by_thread[chunk.thread()];
    proto::Records records;
    EXPECT_TRUE(
        records.ParseFromString(chunk.payload().substr(0, chunk.committed())));
    trace.all.MergeFrom(records);
  }
  return trace;
}

class CaptureTest : public testing::Test {
 protected:
  CaptureTest() {
    char folder[] = "/tmp/dstrace_capture_XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/run.pb";
  }
  ~CaptureTest() override { std::filesystem::remove_all(folder_); }

  // Runs `body` in a child that records into path_; its wait status.
  int Record(const std::function<void()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("DSTRACE_OUTPUT", path_.c_str(), 1);
      runtime::ReadConfig();
      body();
      exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }

  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      files.push_back(entry.path());
    }
    return files;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(CaptureTest, AProcessWithoutEventsWritesNothing) {
  EXPECT_EQ(Record([] {}), 0);
  EXPECT_TRUE(Files().empty());
}

TEST_F(CaptureTest, HeaderAndEndSayWhoAndHow) {
  setenv("RANK", "3", 1);
  EXPECT_EQ(WEXITSTATUS(Record([] {
              Alloc(0x7f0000000000, 512);
              exit(7);
            })),
            7);
  unsetenv("RANK");
  const Trace trace = ReadTrace(path_);
  ASSERT_EQ(trace.all.header_size(), 1);
  const proto::Header& header = trace.all.header(0);
  EXPECT_EQ(header.format_version(), 1u);
  EXPECT_EQ(header.parent_pid(), static_cast<uint32_t>(getpid()));
  EXPECT_GE(header.command_size(), 1);
  EXPECT_TRUE(header.crash_proof());
  EXPECT_EQ(header.environment(0).name(), "RANK");
  EXPECT_EQ(header.environment(0).value(), "3");
  ASSERT_EQ(trace.all.end_size(), 1);
  EXPECT_EQ(trace.all.end(0).kind(), proto::End::EXIT);
  EXPECT_EQ(trace.all.end(0).status(), 7);
}

TEST_F(CaptureTest, EveryIdThatIsUsedIsDefined) {
  EXPECT_EQ(Record([] {
              for (uint64_t i = 0; i < 1000; ++i) Alloc(0x1000 * i, 512);
              const runtime::Guard guard;
              RecordDevice({.kind = DeviceKind::kAlloc,
                            .api = "cuMemAlloc_v2",
                            .label = "cudaMalloc",
                            .address = 1,
                            .size = 2});
            }),
            0);
  const proto::Records all = ReadTrace(path_).all;
  std::set<uint32_t> frames, stacks, strings, modules;
  for (const auto& s : all.string()) EXPECT_TRUE(strings.insert(s.id()).second);
  for (const auto& m : all.module()) EXPECT_TRUE(modules.insert(m.id()).second);
  for (const auto& f : all.frame()) {
    EXPECT_TRUE(frames.insert(f.id()).second);
    EXPECT_TRUE(f.name() == 0 || strings.contains(f.name()));
    EXPECT_TRUE(f.module() == 0 || modules.contains(f.module()));
  }
  for (const auto& s : all.stack()) {
    EXPECT_TRUE(stacks.insert(s.id()).second);
    for (const uint32_t frame : s.frame()) EXPECT_TRUE(frames.contains(frame));
  }
  EXPECT_EQ(all.tensor_alloc_size(), 1000);
  ASSERT_EQ(all.device_event_size(), 1);
  EXPECT_TRUE(stacks.contains(all.device_event(0).stack()));
  EXPECT_TRUE(strings.contains(all.device_event(0).api()));
  EXPECT_TRUE(strings.contains(all.device_event(0).label()));
}

TEST_F(CaptureTest, SigkillLosesNoRecordedEvent) {
  constexpr int kEvents = 30000;
  const int status = Record([] {
    for (int i = 0; i < kEvents; ++i) Alloc(0x1000, i % 2 == 0 ? 512 : -512);
    raise(SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  const proto::Records all = ReadTrace(path_).all;
  EXPECT_EQ(all.tensor_alloc_size(), kEvents / 2);
  EXPECT_EQ(all.tensor_free_size(), kEvents / 2);
  EXPECT_EQ(all.end_size(), 0);
}

TEST_F(CaptureTest, ThousandsOfShortThreadsShareAFewChunks) {
  constexpr int kThreads = 2000;
  EXPECT_EQ(Record([] {
              for (int i = 0; i < kThreads; ++i) {
                std::thread([] { Alloc(0x1000, 512); }).join();
              }
            }),
            0);
  const Trace trace = ReadTrace(path_);
  EXPECT_EQ(trace.all.tensor_alloc_size(), kThreads);
  EXPECT_LE(trace.chunks, 4);
  // Each but the one that opened a chunk is named.
  EXPECT_GE(trace.all.thread_size(), kThreads - trace.chunks);
}

TEST_F(CaptureTest, ThreadsRecordAtOnceAndNothingIsLost) {
  constexpr int kThreads = 16;
  constexpr int kEach = 20000;
  EXPECT_EQ(Record([] {
              std::latch start(kThreads);
              std::vector<std::thread> threads;
              for (int t = 0; t < kThreads; ++t) {
                threads.emplace_back([&start, t] {
                  start.arrive_and_wait();
                  for (int i = 0; i < kEach; ++i) {
                    Alloc(static_cast<uint64_t>(t) << 32 | i << 9, 512);
                  }
                });
              }
              for (std::thread& thread : threads) thread.join();
            }),
            0);
  EXPECT_EQ(ReadTrace(path_).all.tensor_alloc_size(), kThreads * kEach);
}

TEST_F(CaptureTest, AForkedChildWritesItsOwnFile) {
  EXPECT_EQ(Record([] {
              Alloc(0x1000, 512);
              if (fork() == 0) {
                Alloc(0x2000, 512);
                Alloc(0x3000, 512);
                exit(0);
              }
              wait(nullptr);
              Alloc(0x4000, 512);
            }),
            0);
  const std::vector<std::string> files = Files();
  ASSERT_EQ(files.size(), 2u);
  for (const std::string& file : files) {
    const Trace trace = ReadTrace(file);
    EXPECT_EQ(trace.all.tensor_alloc_size(), 2) << file;
    EXPECT_EQ(trace.all.header_size(), 1);
    EXPECT_EQ(trace.all.end_size(), 1);
  }
}

TEST_F(CaptureTest, AForkedChildWithoutEventsLeavesTheParentsFileAlone) {
  EXPECT_EQ(Record([] {
              Alloc(0x1000, 512);
              if (fork() == 0) exit(3);
              wait(nullptr);
              Alloc(0x4000, 512);
            }),
            0);
  ASSERT_EQ(Files().size(), 1u);
  const Trace trace = ReadTrace(path_);
  EXPECT_EQ(trace.all.tensor_alloc_size(), 2);
  ASSERT_EQ(trace.all.end_size(), 1);
  EXPECT_EQ(trace.all.end(0).status(), 0);
}

// From here on as under a kernel that knows no MADV_WIPEONFORK (before 4.14).
bool RefuseToWipeOnFork() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_WIPEONFORK, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(filter)),
                              filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Of a tensor's allocation: its second number, after the time.
bool HasStack(const std::string& tuple) {
  size_t at = 0;
  while ((static_cast<uint8_t>(tuple.at(at)) & 0x80) != 0) ++at;
  return tuple.at(at + 1) != 0;
}

TEST_F(CaptureTest, WhereAForkWipesNoPagesParentAndChildRecordAllTheSame) {
  const int status = Record([] {
    if (!RefuseToWipeOnFork()) _exit(77);
    for (int i = 0; i < 10; ++i) Alloc(0x1000 * (i + 1), 512);
    if (fork() == 0) {
      for (int i = 0; i < 10; ++i) Alloc(0x1000 * (i + 1), 512);
      exit(0);
    }
    wait(nullptr);
    Alloc(0x100000, 512);
  });
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(status, 0);
  const std::vector<std::string> files = Files();
  ASSERT_EQ(files.size(), 2u);
  for (const std::string& file : files) {
    const proto::Records all = ReadTrace(file).all;
    EXPECT_EQ(all.tensor_alloc_size(), file == path_ ? 11 : 10) << file;
    for (const std::string& alloc : all.tensor_alloc()) {
      EXPECT_TRUE(HasStack(alloc)) << file;
    }
  }
}

TEST_F(CaptureTest, LossIsInTheFileByCause) {
  EXPECT_EQ(Record([] {
              const runtime::Guard guard;
              CountLoss(LossCause::kReentered, {});  // before the log is open
              RecordTensor(nullptr, 1, 512, 0, 0, kCuda0);
              CountLoss(LossCause::kReentered, {});
              CountLoss(LossCause::kBypassed, "libfoo.so");
              raise(SIGKILL);
            }),
            SIGKILL);
  std::map<int, uint64_t> counts;
  std::string detail;
  const proto::Records all = ReadTrace(path_).all;
  for (const auto& loss : all.loss()) {
    counts[loss.cause()] += loss.count();
    detail += loss.detail();
  }
  EXPECT_EQ(counts[proto::Loss::REENTERED], 2u);
  EXPECT_EQ(counts[proto::Loss::BYPASSED], 1u);
  EXPECT_EQ(counts[proto::Loss::DISK_FULL], 0u);
  EXPECT_EQ(detail, "libfoo.so");
}

TEST_F(CaptureTest, AnUnwritableFolderIsSaidOnceAndTheProgramGoesOn) {
  path_ = folder_ + "/missing/run.pb";
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const int status = Record([&pipe_ends] {
    dup2(pipe_ends[1], STDERR_FILENO);
    for (int i = 0; i < 10; ++i) Alloc(0x1000, 512);
    exit(5);
  });
  close(pipe_ends[1]);
  EXPECT_EQ(WEXITSTATUS(status), 5);
  std::string said(4096, '\0');
  said.resize(static_cast<size_t>(
      std::max<ssize_t>(read(pipe_ends[0], said.data(), said.size()), 0)));
  close(pipe_ends[0]);
  EXPECT_EQ(said, "dstrace: cannot record: " + path_ +
                      ": No such file or directory\n");
}

TEST_F(CaptureTest, KindsAndCausesHaveTheNumbersOfTheProto) {
  EXPECT_EQ(static_cast<int>(DeviceKind::kPhysicalRetain),
            proto::DeviceEvent::PHYSICAL_RETAIN);
  EXPECT_EQ(static_cast<int>(DeviceKind::kMap), proto::DeviceEvent::MAP);
  EXPECT_EQ(static_cast<int>(DeviceKind::kHostAlloc),
            proto::DeviceEvent::HOST_ALLOC);
  EXPECT_EQ(static_cast<int>(DeviceKind::kCommunicator),
            proto::DeviceEvent::COMMUNICATOR);
  EXPECT_EQ(static_cast<int>(SampleReason::kModule),
            proto::MemorySample::MODULE);
  EXPECT_EQ(static_cast<int>(LossCause::kPythonLayout),
            proto::Loss::PYTHON_LAYOUT);
  EXPECT_EQ(static_cast<int>(EndKind::kAbort), proto::End::ABORT);
  EXPECT_EQ(static_cast<int>(MarkKind::kPop), proto::Mark::POP);
}

}  // namespace
}  // namespace dstrace::capture
