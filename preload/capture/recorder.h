// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_RECORDER_H_
#define DSTRACE_PRELOAD_CAPTURE_RECORDER_H_

// The only door out of a hook. Each call stamps the time, takes the stack and
// writes one record into the calling thread's chunk of the log; when it
// returns, the record survives SIGKILL.
//
// Thread-safe: thread-safe, no lock on the common path. noexcept; errno is
// preserved; whatever cannot be recorded is counted as loss. The first call in
// a process opens the log file; before it dstrace has done nothing.
//
// Calls made while the thread is already inside dstrace are ignored by
// runtime::Guard, which every hook holds:
//
//   runtime::Guard guard;
//   CUresult result = real(ptr, size);
//   if (guard.entered()) capture::RecordDevice({...});

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "preload/runtime/hot.h"

namespace dstrace::capture {

// Values are those of DeviceEvent.Kind in proto/trace.proto (checked in tests).
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

inline constexpr int kDeviceHost = -1;
inline constexpr int kDeviceUnknown = -2;

// One driver (or, where no driver call was seen, runtime) call.
struct DeviceEvent {
  DeviceKind kind = DeviceKind::kUnknown;
  const char* api = nullptr;    // static string: the function called
  const char* label = nullptr;  // static string: runtime function around it
  uint64_t time = 0;  // 0: stamp now. A free passes Now() from before the call.
  uint64_t address = 0;
  uint64_t size = 0;  // bytes
  int device = kDeviceUnknown;
  uint64_t handle = 0;
  uint64_t stream = 0;
  uint64_t pool = 0;
  uint64_t offset = 0;
  uint64_t flags = 0;
  int result = 0;           // what the caller is told; 0 is success
  uint64_t free_bytes = 0;  // on failure, if known
  uint64_t total_bytes = 0;
};

enum class SampleReason : uint8_t {
  kUnknown = 0,
  kContext = 1,
  kEvent = 2,
  kOom = 3,
  kFirst = 4,
  kFinal = 5,
  kModule = 6,
};

// torch's c10::Device, as plain numbers. CUDA is type 1.
struct TorchDevice {
  int8_t type;
  int8_t index;
};

void RecordDevice(const DeviceEvent& event) noexcept;

// cuMemGetInfo's answer for `device`, bytes.
void RecordMemorySample(int device, uint64_t free_bytes, uint64_t total_bytes,
                        SampleReason reason) noexcept;

// Tensors: record_tensor.h.

void RecordTorchOutOfMemory(uint64_t size, uint64_t allocated,
                            uint64_t reserved, TorchDevice device) noexcept;

// Stream-pending evidence, in the thread of the call.
enum class StreamEventKind : uint8_t { kRecord = 0, kReady = 1 };
void RecordStreamEvent(StreamEventKind kind, uint64_t event,
                       uint64_t stream) noexcept;

void RecordGpu(int index, std::string_view name, std::string_view uuid,
               uint64_t total_bytes) noexcept;

// A fact about the process learned now ("torch.version"). Last one wins.
void RecordProperty(std::string_view name, std::string_view value) noexcept;

enum class MarkKind : uint8_t { kPoint = 0, kPush = 1, kPop = 2 };
void RecordMark(MarkKind kind, std::string_view name,
                std::string_view domain) noexcept;

// What CUPTI saw since it was enabled. Plain data: it crosses cupti_seam.h.
struct CuptiTotals {
  static constexpr int kKinds = 8;  // by CUpti_ActivityMemoryKind

  struct Kind {
    uint64_t allocations;
    uint64_t allocated_bytes;
    uint64_t frees;
    uint64_t freed_bytes;
  };
  Kind kinds[kKinds];
  uint64_t pool_operations;
  uint64_t correlated;  // records with a correlation id
  uint64_t dropped;     // records that CUPTI lost
  uint64_t unknown;     // records that are not understood
  uint32_t version;     // cuptiGetVersion()
  bool stopped;         // the program took CUPTI for itself
};
// Ignored where no event was recorded yet.
void RecordCupti(const CuptiTotals& totals) noexcept;

// Values are those of Loss.Cause in proto/trace.proto (checked in tests).
enum class LossCause : uint8_t {
  kUnknown = 0,
  kDiskFull = 1,
  kRecordTooLarge = 2,
  kNoMemory = 3,
  kReentered = 4,
  kStackTableFull = 5,
  kForked = 6,
  kUnmatchedFree = 7,
  kBypassed = 8,
  kPythonLayout = 9,
};
void CountLoss(LossCause cause, std::string_view detail) noexcept;

// A module was loaded or unloaded: code addresses may mean something else now.
void ModulesChanged() noexcept;

// How the process ends, where that can be seen. Values are those of End.Kind
// in proto/trace.proto. `status` is the exit status or signal number. Nothing
// is recorded after it except when an exec failed.
enum class EndKind : uint8_t {
  kNone = 0,  // the end recorded before did not happen: exec failed
  kExit = 1,
  kFastExit = 2,
  kSignal = 3,
  kExec = 4,
  kAbort = 5,
};
void RecordEnd(EndKind kind, int status) noexcept;

// CLOCK_MONOTONIC, nanoseconds: for a free, taken before the real call, so
// that a reused address is never live twice.
uint64_t Now() noexcept;

// True once a first event has opened the log.
bool IsRecording() noexcept;

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_RECORDER_H_
