// SPDX-License-Identifier: Apache-2.0
//
// Random programs, recorded into real files by several threads, against an
// account that is slow and plain: it keeps a list of what is live and adds it
// up after every event.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/log/trace_reader.h"
#include "analyzer/model/build_run.h"
#include "gtest/gtest.h"
#include "tests/support/trace_builder.h"

namespace dstrace::model {
namespace {

using Built = Run;  // testing::Test has a Run of its own

using dstrace::testing::TraceBuilder;

constexpr int kDevices = 2;
constexpr uint32_t kThreads = 5;

struct Live {
  bool tensor = false;
  uint64_t address = 0;
  uint64_t size = 0;
  int device = 0;
  uint32_t stack = 0;
  std::string owner;  // of a device allocation
};

struct Expected {  // of one device at one instant
  uint64_t time = 0;
  uint64_t used = 0;
  uint64_t live = 0;
  uint64_t torch_segments = 0;
  uint64_t nccl = 0;
  std::map<uint32_t, uint64_t> tensors_by_stack;
};

class Program {
 public:
  explicit Program(uint32_t seed) : random_(seed) {
    torch_ = trace_.NativeStack({"libcudart.so.12", "libc10_cuda.so"});
    nccl_ = trace_.NativeStack({"libcuda.so.1", "libnccl.so.2"});
    for (int i = 0; i < 4; ++i) {
      tensors_.push_back(trace_.NativeStack({"libtorch_cpu.so"}));
    }
    trace_.thread(1).Close();
  }

  void RunSteps(int steps) {
    for (int i = 0; i < steps; ++i) {
      // Long stretches in one thread and quick changes both occur.
      if (Pick(3) == 0) thread_ = 10 + Pick(kThreads);
      time_ += 1 + Pick(1000);
      Step();
      if (Pick(40) == 0) trace_.thread(thread_).Close();
    }
  }

  TraceBuilder& trace() { return trace_; }
  // State after each step, by device.
  const std::vector<Expected>& history(int device) const {
    return history_[static_cast<size_t>(device)];
  }
  uint64_t end() const { return time_; }

 private:
  uint32_t Pick(uint32_t below) { return random_() % below; }

  void Step() {
    const uint32_t what = Pick(20);
    const int device = static_cast<int>(Pick(kDevices));
    if (what < 8) {
      AddTensor(device);
    } else if (what < 15) {
      RemoveOne();
    } else if (what < 18) {
      AddDevice(device);
    } else {
      TakeSample(device);
    }
    Note();
  }

  void AddTensor(int device) {
    const Live live{true,   next_address_ += 0x200, 1 + Pick(100000),
                    device, tensors_[Pick(4)],      ""};
    trace_.thread(thread_).Alloc(TraceBuilder::At(time_), live.stack,
                                 live.address, live.size,
                                 0x100 + static_cast<uint32_t>(device));
    live_.push_back(live);
  }

  void AddDevice(int device) {
    const bool torch = Pick(2) == 0;
    const Live live{false,  next_address_ += 0x200, 1000 + Pick(1000000),
                    device, torch ? torch_ : nccl_, torch ? "torch" : "nccl"};
    proto::DeviceEvent event;
    event.set_kind(Pick(2) == 0 ? proto::DeviceEvent::ALLOC
                                : proto::DeviceEvent::POOL_ALLOC);
    event.set_address(live.address);
    event.set_size(live.size);
    event.set_device(device);
    event.set_stack(live.stack);
    trace_.thread(thread_).Add(TraceBuilder::At(time_), event);
    live_.push_back(live);
  }

  void RemoveOne() {
    if (live_.empty()) return AddTensor(0);
    const size_t index = Pick(static_cast<uint32_t>(live_.size()));
    const Live gone = live_[index];
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
    if (gone.tensor) {
      trace_.thread(thread_).Free(TraceBuilder::At(time_), gone.address,
                                  gone.size,
                                  0x100 + static_cast<uint32_t>(gone.device));
      return;
    }
    proto::DeviceEvent event;
    event.set_kind(proto::DeviceEvent::FREE);
    event.set_address(gone.address);
    event.set_device(gone.device);
    trace_.thread(thread_).Add(TraceBuilder::At(time_), event);
  }

  void TakeSample(int device) {
    const uint64_t total = uint64_t{1} << 40;
    const uint64_t used = DeviceBytes(device) + 1000000 + Pick(5000);
    proto::MemorySample sample;
    sample.set_device(device);
    sample.set_total_bytes(total);
    sample.set_free_bytes(total - used);
    sample.set_reason(proto::MemorySample::EVENT);
    trace_.thread(thread_).Add(TraceBuilder::At(time_), sample);
    outside_[static_cast<size_t>(device)] = used - DeviceBytes(device);
  }

  uint64_t DeviceBytes(int device) const {
    uint64_t sum = 0;
    for (const Live& live : live_) {
      if (!live.tensor && live.device == device) sum += live.size;
    }
    return sum;
  }

  void Note() {
    for (int device = 0; device < kDevices; ++device) {
      Expected now;
      now.time = time_;
      for (const Live& live : live_) {
        if (live.device != device) continue;
        if (live.tensor) now.tensors_by_stack[live.stack] += live.size;
        if (live.tensor) now.live += live.size;
        if (live.owner == "torch") now.torch_segments += live.size;
        if (live.owner == "nccl") now.nccl += live.size;
      }
      now.used = DeviceBytes(device) + outside_[static_cast<size_t>(device)];
      history_[static_cast<size_t>(device)].push_back(now);
    }
  }

  std::mt19937 random_;
  TraceBuilder trace_;
  uint32_t torch_ = 0;
  uint32_t nccl_ = 0;
  std::vector<uint32_t> tensors_;
  uint32_t thread_ = 10;
  uint64_t time_ = 0;
  uint64_t next_address_ = 0x7f0000000000;
  std::vector<Live> live_;
  uint64_t outside_[kDevices] = {};  // of the last sample, beyond our layer
  std::vector<Expected> history_[kDevices];
};

// With samples from the start, so that use is defined at every instant.
class OracleTest : public ::testing::TestWithParam<int> {
 protected:
  static Built BuildFrom(const std::string& bytes,
                         const BuildOptions& options) {
    const int fd = memfd_create("oracle", MFD_CLOEXEC);
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    dstrace::testing::WriteFile(path, bytes);
    auto reader = log::TraceReader::Open(path);
    EXPECT_TRUE(reader.ok()) << reader.status();
    EXPECT_TRUE((*reader)->facts().notes.empty());
    auto run = BuildRun(**reader, options);
    EXPECT_TRUE(run.ok()) << run.status();
    close(fd);
    return run.ok() ? *std::move(run) : Built();
  }

  static void ExpectSame(const Snapshot& snapshot, const Expected& expected) {
    const Ledger& ledger = snapshot.ledger;
    EXPECT_EQ(ledger.torch_live, expected.live);
    EXPECT_EQ(ledger.torch_reserved,
              std::max(expected.torch_segments, expected.live));
    const auto nccl = ledger.libraries.find("nccl");
    EXPECT_EQ(nccl == ledger.libraries.end() ? 0 : nccl->second, expected.nccl);
    std::map<uint32_t, uint64_t> tensors;
    for (const Holding& holding : snapshot.holdings) {
      if (holding.layer == Layer::kTensor) {
        tensors[holding.stack] += holding.bytes;
      }
    }
    EXPECT_EQ(tensors, expected.tensors_by_stack);
    uint64_t sum = ledger.torch_live + ledger.torch_cached;
    for (const auto& [owner, bytes] : ledger.libraries) sum += bytes;
    EXPECT_EQ(static_cast<int64_t>(ledger.device_used),
              static_cast<int64_t>(sum) + ledger.residual);
  }
};

TEST_P(OracleTest, PeakEndAndAnyInstantAreWhatThePlainAccountSays) {
  Program program(static_cast<uint32_t>(GetParam()));
  program.RunSteps(1500);
  BuildOptions options;
  options.at.kind = At::Kind::kTime;
  const size_t middle = 700;
  options.at.time_ns = program.history(0)[middle].time;

  const Built run = BuildFrom(program.trace().Bytes(), options);

  ASSERT_EQ(run.devices.size(), static_cast<size_t>(kDevices));
  for (int index = 0; index < kDevices; ++index) {
    const Device& device = run.devices[static_cast<size_t>(index)];
    const std::vector<Expected>& history = program.history(index);
    ASSERT_EQ(device.snapshots.size(), 3U);
    ExpectSame(device.snapshots[1], history.back());
    EXPECT_EQ(device.snapshots[1].ledger.device_used, history.back().used);
    ExpectSame(device.snapshots[2], history[middle]);
    EXPECT_EQ(device.snapshots[2].ledger.device_used, history[middle].used);
    const auto peak = std::max_element(
        history.begin(), history.end(),
        [](const Expected& a, const Expected& b) {
          return std::pair(a.used, a.live) < std::pair(b.used, b.live);
        });
    EXPECT_EQ(device.peak_time_ns, peak->time);
    ExpectSame(device.snapshots[0], *peak);
    EXPECT_EQ(device.snapshots[0].ledger.device_used, peak->used);
  }
  EXPECT_EQ(run.unmatched_tensor_frees, 0U);
  EXPECT_EQ(run.unmatched_device_frees, 0U);
}

TEST_P(OracleTest, TheTimelineNeverMissesAMaximum) {
  Program program(static_cast<uint32_t>(GetParam() + 1000));
  program.RunSteps(600);
  BuildOptions options;
  options.timeline_points = 50;

  const Built run = BuildFrom(program.trace().Bytes(), options);

  for (int index = 0; index < kDevices; ++index) {
    uint64_t live = 0;
    for (const Expected& at : program.history(index)) {
      live = std::max(live, at.live);
    }
    uint64_t seen = 0;
    for (const TimelinePoint& point :
         run.devices.at(static_cast<size_t>(index)).timeline) {
      seen = std::max(seen, point.torch_live);
    }
    EXPECT_EQ(seen, live);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, OracleTest, ::testing::Range(1, 21));

}  // namespace
}  // namespace dstrace::model
