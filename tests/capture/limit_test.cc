// SPDX-License-Identifier: Apache-2.0
//
// A file with a limit against an oracle: what is live at the end is known
// exactly, however often the places of the file were written again.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <latch>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "analyzer/log/trace_reader.h"
#include "preload/capture/record_tensor.h"
#include "preload/capture/recorder.h"
#include "preload/capture/session.h"
#include "preload/runtime/config.h"
#include "preload/runtime/guard.h"
#include "proto/trace.pb.h"

namespace dstrace::capture {
namespace {

constexpr TorchDevice kCuda0{.type = 1, .index = 0};
constexpr uint64_t kLimit = 4 << 20;
// Between two looks at a file: in proportion to what a look takes.
#if defined(__SANITIZE_THREAD__)
constexpr useconds_t kPause = 50000;
constexpr int kKills = 6;
#elif defined(__SANITIZE_ADDRESS__)
constexpr useconds_t kPause = 10000;  // all of it takes half a second
constexpr int kKills = 6;
#else
constexpr useconds_t kPause = 1000;
constexpr int kKills = 30;
#endif

void Tensor(uint64_t address, int64_t size) {
  const runtime::Guard guard;
  RecordTensor(nullptr, address, size, 0, 0, kCuda0);
}
void Device(DeviceKind kind, uint64_t address, uint64_t size,
            uint64_t handle = 0) {
  const runtime::Guard guard;
  RecordDevice({.kind = kind,
                .api = "cuTest",
                .address = address,
                .size = size,
                .device = 0,
                .handle = handle});
}

// (address or handle, size) of what is live; what the analyzer's layers hold.
using Live = std::multiset<std::pair<uint64_t, uint64_t>>;

struct Collector : model::EventVisitor {
  bool OnTensorAlloc(const model::TensorAlloc& event) override {
    Check(event.time);
    with_stack += event.stack != 0;
    if (!tensors.emplace(event.address, event.size).second) ++duplicates;
    return true;
  }
  bool OnTensorFree(const model::TensorFree& event) override {
    Check(event.time);
    if (tensors.erase(event.address) == 0) ++unmatched;
    return true;
  }
  bool OnDevice(const model::DeviceEvent& event) override {
    Check(event.time);
    using model::DeviceKind;
    if (event.kind == DeviceKind::kAlloc) {
      if (!device.emplace(event.address, event.size).second) ++duplicates;
    } else if (event.kind == DeviceKind::kFree) {
      if (device.erase(event.address) == 0) ++unmatched;
    } else {
      others.insert(static_cast<int>(event.kind));
    }
    return true;
  }
  void Check(uint64_t time) {
    if (time < last) ++disorder;
    last = time;
  }

  std::map<uint64_t, uint64_t> tensors;
  std::map<uint64_t, uint64_t> device;
  std::set<int> others;
  uint64_t last = 0;
  uint64_t with_stack = 0;
  int duplicates = 0;
  int unmatched = 0;
  int disorder = 0;
};

class LimitTest : public testing::Test {
 protected:
  LimitTest() {
    char folder[] = "/tmp/dstrace_limit_XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/run.pb";
  }
  ~LimitTest() override { std::filesystem::remove_all(folder_); }

  pid_t Start(const std::function<void()>& body,
              const char* limit = "4MiB") const {
    const pid_t child = fork();
    if (child != 0) return child;
    setenv("DSTRACE_OUTPUT", path_.c_str(), 1);
    setenv("DSTRACE_LOG_LIMIT", limit, 1);
    runtime::ReadConfig();
    body();
    exit(0);
  }
  static int Wait(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }

  // Replays the file; also returns its facts.
  Collector Read(model::TraceFacts* facts) const {
    Collector collector;
    auto reader = log::TraceReader::Open(path_);
    EXPECT_TRUE(reader.ok()) << reader.status();
    if (!reader.ok()) return collector;
    const absl::Status status = (*reader)->Replay(collector);
    EXPECT_TRUE(status.ok()) << status;
    *facts = (*reader)->ReleaseFacts();
    return collector;
  }

  std::string folder_;
  std::string path_;
};

// One thread's part of the oracle test: blocks in a range of its own, some of
// them for ever.
class Churn {
 public:
  Churn(int thread, int events)
      : base_(0x700000000000 + (uint64_t{1} << 36) * thread),
        events_(events),
        random_(thread + 1) {}

  void Run() {
    for (int i = 0; i < events_; ++i) Step(i);
  }
  // Keeps what is live; returns (address, size).
  [[nodiscard]] const std::map<uint64_t, uint64_t>& live() const {
    return live_;
  }

 private:
  void Step(int i) {
    if (live_.size() > 200 || (!live_.empty() && random_() % 2 == 0)) {
      // Sometimes the oldest of all goes, most often a young one.
      auto victim = live_.begin();
      std::advance(victim, random_() % live_.size());
      const auto [address, size] = *victim;
      live_.erase(victim);
      Tensor(address, -static_cast<int64_t>(size));
      return;
    }
    const uint64_t address = base_ + random_() % 4096 * 512;
    if (live_.contains(address)) return;
    const uint64_t size = 512 * (1 + i % 1000);
    live_[address] = size;
    Tensor(address, static_cast<int64_t>(size));
  }

  const uint64_t base_;
  const int events_;
  std::mt19937_64 random_;
  std::map<uint64_t, uint64_t> live_;
};

void WriteLive(const std::string& path, const std::vector<Churn>& churns) {
  std::ofstream out(path);
  for (const Churn& churn : churns) {
    for (const auto& [address, size] : churn.live()) {
      out << address << ' ' << size << '\n';
    }
  }
}

std::map<uint64_t, uint64_t> ReadLive(const std::string& path) {
  std::ifstream in(path);
  std::map<uint64_t, uint64_t> live;
  uint64_t address = 0;
  uint64_t size = 0;
  while (in >> address >> size) live[address] = size;
  return live;
}

TEST_F(LimitTest, KnowsWhatIsLiveToTheByteAfterManyTurnsOfTheFile) {
  constexpr int kThreads = 4;
  constexpr int kEvents = 400000;
  const std::string expected = folder_ + "/live";
  EXPECT_EQ(Wait(Start([&] {
              std::vector<Churn> churns;
              for (int t = 0; t < kThreads; ++t)
                churns.emplace_back(t, kEvents);
              std::vector<std::thread> threads;
              for (Churn& churn : churns) {
                threads.emplace_back([&churn] { churn.Run(); });
              }
              for (std::thread& thread : threads) thread.join();
              WriteLive(expected, churns);
            })),
            0);

  model::TraceFacts facts;
  const Collector found = Read(&facts);
  EXPECT_EQ(found.tensors, ReadLive(expected));
  EXPECT_FALSE(found.tensors.empty());
  EXPECT_EQ(found.duplicates, 0);
  EXPECT_EQ(found.unmatched, 0);
  EXPECT_EQ(found.disorder, 0);
  EXPECT_TRUE(facts.losses.empty());
  EXPECT_GT(facts.history_start_ns, 0u);
  EXPECT_LT(facts.history_start_ns, facts.process.duration_ns);
  EXPECT_LE(facts.file_bytes, kLimit);
  EXPECT_GT(facts.tracer_bytes, 0u);
  EXPECT_LT(facts.event_count, uint64_t{kThreads} * kEvents);
}

TEST_F(LimitTest, WithoutATurnOfTheFileEverythingIsThere) {
  const std::string expected = folder_ + "/live";
  EXPECT_EQ(Wait(Start([&] {
              std::vector<Churn> churns;
              churns.emplace_back(0, 20000);
              churns[0].Run();
              WriteLive(expected, churns);
            })),
            0);
  model::TraceFacts facts;
  const Collector found = Read(&facts);
  EXPECT_EQ(found.tensors, ReadLive(expected));
  EXPECT_EQ(facts.history_start_ns, 0u);
  EXPECT_EQ(facts.log_limit_bytes, kLimit);
  EXPECT_EQ(found.unmatched + found.duplicates, 0);
}

TEST_F(LimitTest, KeepsDeviceMemoryOfTheFirstSecondForEver) {
  EXPECT_EQ(Wait(Start([] {
              Device(DeviceKind::kContextCreate, 0, 0, 1);
              Device(DeviceKind::kCommunicator, 0, 8, 77);
              for (uint64_t i = 1; i <= 100; ++i) {
                Device(DeviceKind::kAlloc, i << 21, i);
              }
              // Mapped, and its handle given back: live through the mapping.
              Device(DeviceKind::kPhysicalCreate, 0, 2 << 20, 5);
              Device(DeviceKind::kMap, 0x500000000, 2 << 20, 5);
              Device(DeviceKind::kPhysicalRelease, 0, 0, 5);
              Device(DeviceKind::kPhysicalCreate, 0, 4 << 20, 6);
              Device(DeviceKind::kPhysicalRelease, 0, 0, 6);
              for (uint64_t i = 0; i < 200000; ++i) {
                Device(DeviceKind::kAlloc, 0x900000000000, 7 + i);
                Device(DeviceKind::kFree, 0x900000000000, 0);
              }
              for (uint64_t i = 1; i <= 50; ++i) {
                Device(DeviceKind::kFree, i << 21, 0);
              }
            })),
            0);
  model::TraceFacts facts;
  const Collector found = Read(&facts);
  ASSERT_EQ(found.device.size(), 50u);
  for (const auto& [address, size] : found.device) {
    EXPECT_EQ(address >> 21, size);
    EXPECT_GT(size, 50u);
  }
  EXPECT_EQ(found.unmatched, 0);
  EXPECT_GT(facts.history_start_ns, 0u);
  EXPECT_LE(facts.file_bytes, kLimit);
  for (const DeviceKind kind :
       {DeviceKind::kCommunicator, DeviceKind::kPhysicalCreate,
        DeviceKind::kMap, DeviceKind::kPhysicalRelease}) {
    EXPECT_TRUE(found.others.contains(static_cast<int>(kind)))
        << static_cast<int>(kind);
  }
}

// The child is stopped at moments it does not choose: reading takes longer than
// an instant.
TEST_F(LimitTest, IsValidAtAnyInstantWhilePlacesAreWrittenAgain) {
  const pid_t child = Start([] {
    Churn churn(0, 400000);
    churn.Run();
  });
  int turned = 0;
  int status = 0;
  for (;;) {
    kill(child, SIGSTOP);
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    if (!WIFSTOPPED(status)) break;
    if (access(path_.c_str(), F_OK) == 0) {
      std::ifstream in(path_, std::ios::binary);
      std::string bytes(std::filesystem::file_size(path_), '\0');
      in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      proto::TraceFile file;
      ASSERT_TRUE(file.ParseFromString(bytes)) << bytes.size() << " bytes";
      EXPECT_LE(bytes.size(), kLimit);
      turned += bytes.size() == kLimit;
    }
    kill(child, SIGCONT);
    usleep(kPause);
  }
  EXPECT_EQ(status, 0);
  EXPECT_GT(turned, 10);
}

// After each kill: no block is live that the thread had not allocated or had
// freed, but for the one event that may be under way.
TEST_F(LimitTest, KnowsWhatIsLiveWhereverItIsKilled) {
  std::mt19937 dice(20);
  int turned = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    unlink(path_.c_str());
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = Start([&] {
      // Blocks 1..100 stay; then one at a time, for ever.
      for (uint64_t i = 1; i <= 100; ++i) Tensor(i << 20, 512);
      for (uint64_t i = 0;; ++i) {
        if (i == 200000) (void)!write(pipe_ends[1], "x", 1);
        Tensor(0x700000000000 + i % 5000 * 512, 1024);
        Tensor(0x700000000000 + i % 5000 * 512, -1024);
      }
    });
    char byte = 0;
    ASSERT_EQ(read(pipe_ends[0], &byte, 1), 1);
    usleep(dice() % 20000);
    kill(child, SIGKILL);
    Wait(child);
    close(pipe_ends[0]);
    close(pipe_ends[1]);

    model::TraceFacts facts;
    const Collector found = Read(&facts);
    ASSERT_GE(found.tensors.size(), 100u);
    ASSERT_LE(found.tensors.size(), 101u);
    for (uint64_t i = 1; i <= 100; ++i) {
      ASSERT_TRUE(found.tensors.contains(i << 20)) << i;
    }
    EXPECT_EQ(found.unmatched + found.duplicates + found.disorder, 0);
    EXPECT_TRUE(facts.notes.empty()) << facts.notes.front();
    turned += facts.history_start_ns > 0;
  }
  EXPECT_GT(turned, kKills / 2);
}

// Blocks of two GPUs that any thread allocates and any other one frees, under
// the GPU's lock as in torch; what is live is in memory that outlives the
// process.
class SharedBlocks {
 public:
  SharedBlocks()
      : shared_(static_cast<Shared*>(
            mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedBlocks() { munmap(shared_, sizeof(Shared)); }
  SharedBlocks(const SharedBlocks&) = delete;
  SharedBlocks& operator=(const SharedBlocks&) = delete;

  // In the process that records.
  void Churn(int threads, uint64_t events) {
    std::vector<std::thread> running;
    running.reserve(static_cast<size_t>(threads));
    for (int t = 0; t < threads; ++t) {
      running.emplace_back([this, t, events] {
        std::mt19937_64 random(t);
        for (uint64_t i = 0; i < events; ++i) {
          Step(random() % kGpus, random() % kBlocks);
        }
      });
    }
    for (std::thread& thread : running) thread.join();
  }
  uint64_t steps() const {
    return shared_->gpus[0].steps + shared_->gpus[1].steps;
  }

  // The block that was changing hands, if any, may be either.
  void ExpectLive(const std::map<uint64_t, uint64_t>& found) const {
    size_t wrong = 0;
    for (size_t gpu = 0; gpu < kGpus; ++gpu) {
      for (size_t block = 0; block < kBlocks; ++block) {
        if (block + 1 == shared_->gpus[gpu].changing) continue;
        const auto at = found.find(AddressOf(gpu, block));
        const uint64_t size = at == found.end() ? 0 : at->second;
        wrong += size != shared_->gpus[gpu].size[block];
      }
    }
    EXPECT_EQ(wrong, 0u) << "after " << steps() << " events";
  }

 private:
  static constexpr size_t kGpus = 2;
  static constexpr size_t kBlocks = 1500;
  struct Gpu {
    std::atomic<uint64_t> steps;
    std::atomic<size_t> changing;  // block + 1
    std::atomic<uint64_t> size[kBlocks];
  };
  struct Shared {
    Gpu gpus[kGpus];
  };
  static uint64_t AddressOf(size_t gpu, size_t block) {
    return 0x700000000000 + (gpu << 32) + block * 512;
  }
  void Step(size_t gpu_index, size_t block) {
    const std::lock_guard lock(mutex_[gpu_index]);
    Gpu& gpu = shared_->gpus[gpu_index];
    const uint64_t size = gpu.size[block];
    const uint64_t next = size == 0 ? 512 * (gpu.steps % 1000 + 1) : 0;
    gpu.changing = block + 1;
    {
      const runtime::Guard guard;
      RecordTensor(nullptr, AddressOf(gpu_index, block),
                   static_cast<int64_t>(next - size), 0, 0,
                   {.type = 1, .index = static_cast<int8_t>(gpu_index)});
    }
    gpu.size[block] = next;
    gpu.changing = 0;
    ++gpu.steps;
  }

  Shared* const shared_;
  std::mutex mutex_[kGpus];
};

TEST_F(LimitTest, KnowsWhatThreadsFreedOfEachOther) {
  SharedBlocks blocks;
  ASSERT_EQ(Wait(Start([&] { blocks.Churn(4, 300000); })), 0);
  model::TraceFacts facts;
  const Collector found = Read(&facts);
  blocks.ExpectLive(found.tensors);
  EXPECT_EQ(found.duplicates + found.unmatched + found.disorder, 0);
  EXPECT_GT(facts.history_start_ns, 0u);
  EXPECT_TRUE(facts.losses.empty());
  EXPECT_LE(facts.file_bytes, kLimit);
}

TEST_F(LimitTest, KnowsWhatThreadsFreedOfEachOtherWhereverItIsKilled) {
  std::mt19937 dice(4);
  int turned = 0;
  for (int kill_number = 0; kill_number < kKills / 3; ++kill_number) {
    unlink(path_.c_str());
    SharedBlocks blocks;
    const pid_t child = Start([&] { blocks.Churn(4, UINT64_MAX); });
    while (blocks.steps() < 600000) usleep(1000);
    usleep(dice() % 20000);
    kill(child, SIGKILL);
    Wait(child);

    model::TraceFacts facts;
    const Collector found = Read(&facts);
    blocks.ExpectLive(found.tensors);
    EXPECT_EQ(found.duplicates + found.unmatched + found.disorder, 0);
    turned += facts.history_start_ns > 0;
  }
  EXPECT_GT(turned, kKills / 6);
}

// No checkpoint is better than one without its event.
TEST_F(LimitTest, WhileAThreadIsStuckInAnEventHistoryStaysWhole) {
  const std::string expected = folder_ + "/live";
  EXPECT_EQ(Wait(Start([&] {
              std::latch stuck(1);
              std::latch done(1);
              std::thread other([&] {
                Tensor(0x1000, 512);
                const runtime::Guard guard;
                log::ThreadLog& log = Session::Get().Enter()->log;
                log.BeginEvent();
                stuck.count_down();
                done.wait();
                log.EndEvent();
              });
              stuck.wait();
              std::vector<Churn> churns;
              churns.emplace_back(0, 700000);
              churns[0].Run();
              WriteLive(expected, churns);
              done.count_down();
              other.join();
            })),
            0);
  model::TraceFacts facts;
  Collector found = Read(&facts);
  EXPECT_EQ(facts.history_start_ns, 0u);
  EXPECT_GT(facts.file_bytes, kLimit);
  EXPECT_EQ(found.tensors.erase(0x1000), 1u);
  EXPECT_EQ(found.tensors, ReadLive(expected));
  EXPECT_EQ(found.unmatched + found.duplicates + found.disorder, 0);
  EXPECT_TRUE(facts.losses.empty());
}

TEST_F(LimitTest, AForkedChildRecordsWithinItsOwnLimit) {
  EXPECT_EQ(Wait(Start([&] {
              Churn before(0, 200000);
              before.Run();
              if (const pid_t grandchild = fork(); grandchild == 0) {
                Churn churn(1, 200000);
                churn.Run();
                exit(0);
              } else {
                Churn after(2, 200000);
                after.Run();
                if (Wait(grandchild) != 0) _exit(1);
              }
            })),
            0);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    ++files;
    EXPECT_LE(entry.file_size(), kLimit) << entry.path();
    const auto reader = log::TraceReader::Open(entry.path());
    ASSERT_TRUE(reader.ok()) << reader.status();
    Collector collector;
    EXPECT_TRUE((*reader)->Replay(collector).ok());
    EXPECT_EQ(collector.unmatched + collector.duplicates, 0);
  }
  EXPECT_EQ(files, 2);
}

// More open chunks than the limit has places.
TEST_F(LimitTest, ExceedsTheLimitForWhatIsOpenAndNoMore) {
  constexpr int kThreads = 100;
  EXPECT_EQ(Wait(Start([] {
              std::latch all(kThreads);
              std::vector<std::thread> threads;
              for (int t = 0; t < kThreads; ++t) {
                threads.emplace_back([&all, t] {
                  Tensor(0x1000 + t * 512, 512);
                  all.arrive_and_wait();
                  for (int i = 0; i < 20000; ++i) {
                    Tensor(0x10000000 + (t << 12), 1024);
                    Tensor(0x10000000 + (t << 12), -1024);
                  }
                });
              }
              for (std::thread& thread : threads) thread.join();
            })),
            0);
  model::TraceFacts facts;
  const Collector found = Read(&facts);
  EXPECT_EQ(found.tensors.size(), size_t{kThreads});
  EXPECT_EQ(found.unmatched + found.duplicates, 0);
  EXPECT_GT(facts.file_bytes, kLimit);
  EXPECT_LE(facts.file_bytes, (kThreads + 30) * uint64_t{65536});
}

}  // namespace
}  // namespace dstrace::capture
