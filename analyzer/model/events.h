// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_EVENTS_H_
#define DSTRACE_ANALYZER_MODEL_EVENTS_H_

// The events of a trace, decoded: what a reader hands to the model.
//
// Times are nanoseconds since the start of the trace, sizes bytes. Text is
// owned by the source and lives as long as it. Plain values; thread-safe for
// reads.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "analyzer/model/run.h"

namespace dstrace::model {

// torch's c10::Device as `type << 8 | index`.
inline constexpr int kTorchCpu = 0;
inline constexpr int kTorchCuda = 1;
inline constexpr int kHostIndex = -1;     // Device::index of host memory
inline constexpr int kUnknownIndex = -2;  // device not known to the recorder
// No machine has a device with this number; an event that says so is damaged.
inline constexpr int kMaxDevices = 1024;

struct TensorAlloc {
  uint64_t time = 0;
  uint64_t address = 0;
  uint64_t size = 0;
  uint32_t thread = 0;
  StackId stack = 0;
  uint32_t torch_device = 0;
};

struct TensorFree {
  uint64_t time = 0;
  uint64_t address = 0;
  uint64_t size = 0;
  uint32_t thread = 0;
  uint32_t torch_device = 0;
};

// Numbers are those of DeviceEvent.Kind in proto/trace.proto.
enum class DeviceKind : uint8_t {
  kUnknown = 0,
  kAlloc = 1,
  kFree = 2,
  kManagedAlloc = 3,
  kPoolAlloc = 4,
  kPoolFree = 5,
  kPhysicalCreate = 6,
  kPhysicalRelease = 7,
  kMap = 8,
  kUnmap = 9,
  kAddressReserve = 10,
  kAddressFree = 11,
  kHostAlloc = 12,
  kHostFree = 13,
  kHostRegister = 14,
  kHostUnregister = 15,
  kContextCreate = 16,
  kContextDestroy = 17,
  kArrayCreate = 18,
  kArrayDestroy = 19,
  kModuleLoad = 20,
  kModuleUnload = 21,
  kIpcOpen = 22,
  kIpcClose = 23,
  kPoolCreate = 24,
  kPoolDestroy = 25,
  kPoolTrim = 26,
  kGraph = 27,
  kLimit = 28,
  kCommunicator = 29,
  kPhysicalRetain = 30,
};

struct DeviceEvent {
  uint64_t time = 0;
  uint32_t thread = 0;
  DeviceKind kind = DeviceKind::kUnknown;
  StackId stack = 0;
  int device = kUnknownIndex;  // CUDA ordinal, kHostIndex or kUnknownIndex
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t handle = 0;
  uint64_t stream = 0;
  uint64_t pool = 0;
  uint64_t offset = 0;
  uint64_t flags = 0;
  int result = 0;  // 0: success
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  std::string_view api = {};
  std::string_view label = {};
};

// Numbers are those of MemorySample.Reason in proto/trace.proto.
enum class SampleReason : uint8_t {
  kUnknown = 0,
  kContext = 1,
  kEvent = 2,
  kOom = 3,
  kFirst = 4,
  kFinal = 5,
  kModule = 6,
};

struct MemorySample {
  uint64_t time = 0;
  uint32_t thread = 0;
  int device = 0;
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  SampleReason reason = SampleReason::kUnknown;
};

struct TorchTotals {
  uint64_t time = 0;
  uint32_t thread = 0;
  uint32_t torch_device = 0;
  uint64_t allocated = 0;
  uint64_t reserved = 0;
  // Not a report of this instant but the last one before the history starts.
  bool is_baseline = false;
};

struct OutOfMemory {
  uint64_t time = 0;
  uint32_t thread = 0;
  uint32_t torch_device = 0;
  uint64_t size = 0;
  uint64_t allocated = 0;
  uint64_t reserved = 0;
  StackId stack = 0;
};

// What shows that a freed block is still in use by a stream.
struct StreamEvent {
  enum class Kind : uint8_t { kRecord = 0, kReady = 1 };
  uint64_t time = 0;
  uint32_t thread = 0;
  Kind kind = Kind::kRecord;
  uint64_t event = 0;   // cudaEvent_t
  uint64_t stream = 0;  // cudaStream_t
};

struct Mark {
  uint64_t time = 0;
  uint32_t thread = 0;
  int kind = 0;  // 0 point, 1 push, 2 pop
  std::string_view name = {};
  std::string_view domain = {};
};

// What CUPTI counted since it was enabled; the last one stands.
struct CuptiTotals {
  struct Kind {
    uint64_t allocations = 0;
    uint64_t allocated_bytes = 0;
    uint64_t frees = 0;
    uint64_t freed_bytes = 0;
  };
  uint64_t time = 0;
  uint32_t thread = 0;
  uint32_t version = 0;            // cuptiGetVersion()
  std::array<Kind, 8> kinds = {};  // by CUpti_ActivityMemoryKind
  uint64_t pool_operations = 0;
  uint64_t dropped = 0;  // records CUPTI lost
  uint64_t unknown = 0;  // records the recorder did not understand
  bool stopped = false;  // the program took CUPTI for itself
};

struct End {
  uint64_t time = 0;
  uint32_t thread = 0;
  EndKind kind = EndKind::kExit;
  int status = 0;
};

// Receives events in order of time. A member returns false to stop the replay.
class EventVisitor {
 public:
  virtual ~EventVisitor() = default;
  virtual bool OnTensorAlloc(const TensorAlloc&) { return true; }
  virtual bool OnTensorFree(const TensorFree&) { return true; }
  virtual bool OnDevice(const DeviceEvent&) { return true; }
  virtual bool OnMemorySample(const MemorySample&) { return true; }
  virtual bool OnTorchTotals(const TorchTotals&) { return true; }
  virtual bool OnOutOfMemory(const OutOfMemory&) { return true; }
  virtual bool OnStreamEvent(const StreamEvent&) { return true; }
  virtual bool OnMark(const Mark&) { return true; }
  virtual bool OnCuptiTotals(const CuptiTotals&) { return true; }
  virtual bool OnEnd(const End&) { return true; }
};

// What a trace says beside its events.
struct TraceFacts {
  Process process;  // `duration_ns` is the time of the last event
  Stacks stacks;
  std::vector<Loss> losses;
  std::vector<std::string> notes;
  uint64_t event_count = 0;
  uint64_t file_bytes = 0;
  // A trace with a limit: what was live at the start of its history is told by
  // events of the time it was made at, everything later by every event.
  uint64_t history_start_ns = 0;  // 0: complete
  uint64_t log_limit_bytes = 0;   // 0: none
  uint64_t tracer_bytes = 0;      // the recorder's own memory; 0: not told
};

// A trace that can be read more than once; each replay gives the same events
// in the same order. Thread-safety: concurrent replays are allowed.
class EventSource {
 public:
  virtual ~EventSource() = default;
  [[nodiscard]] virtual const TraceFacts& facts() const = 0;
  // Moves the facts out; only the destructor may be called afterwards.
  [[nodiscard]] virtual TraceFacts ReleaseFacts() = 0;
  virtual absl::Status Replay(EventVisitor& visitor) const = 0;
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_EVENTS_H_
