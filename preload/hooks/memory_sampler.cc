// SPDX-License-Identifier: Apache-2.0
#include "preload/hooks/memory_sampler.h"

#include <atomic>
#include <optional>

#include "preload/hooks/driver_queries.h"

namespace dstrace::hooks {
namespace {

using capture::DeviceEvent;
using capture::DeviceKind;
using capture::SampleReason;

constexpr uint64_t kIntervalNs = 2'000'000;
constexpr uint64_t kLargeBytes = uint64_t{32} << 20;
constexpr int kMaxDevices = 64;

// When each device was last sampled, CLOCK_MONOTONIC ns; 0: never.
std::atomic<uint64_t> g_last[kMaxDevices];

// Does the event change what the device has left?
bool TouchesDevice(DeviceKind kind) noexcept {
  switch (kind) {
    case DeviceKind::kAlloc:
    case DeviceKind::kFree:
    case DeviceKind::kManagedAlloc:
    case DeviceKind::kPoolAlloc:
    case DeviceKind::kPoolFree:
    case DeviceKind::kPhysicalCreate:
    case DeviceKind::kPhysicalRelease:
    case DeviceKind::kArrayCreate:
    case DeviceKind::kArrayDestroy:
    case DeviceKind::kPoolDestroy:
    case DeviceKind::kPoolTrim:
    case DeviceKind::kGraph:
    case DeviceKind::kLimit:
    case DeviceKind::kCommunicator:
      return true;
    default:
      return false;
  }
}

// True if this thread is the one to sample `device` now.
bool TakeTurn(int device, uint64_t now, bool large) noexcept {
  if (device < 0 || device >= kMaxDevices) return false;
  // relaxed: a rate limit; whoever wins the exchange samples.
  uint64_t last = g_last[device].load(std::memory_order_relaxed);
  // Signed: another thread's event may be later than this one.
  const auto age = static_cast<int64_t>(now - last);
  if (!large && last != 0 && age < static_cast<int64_t>(kIntervalNs)) {
    return false;
  }
  return g_last[device].compare_exchange_strong(last, now,
                                                std::memory_order_relaxed);
}

}  // namespace

void QueryMemory(uint64_t& free_bytes, uint64_t& total_bytes) noexcept {
  const std::optional<DeviceMemory> memory = CurrentMemory();
  if (!memory) return;
  free_bytes = memory->free_bytes;
  total_bytes = memory->total_bytes;
}

uint64_t SampleNow(SampleReason reason) noexcept {
  const int device = CurrentDevice();
  if (device < 0) return 0;
  const std::optional<DeviceMemory> memory = CurrentMemory();
  if (!memory) return 0;
  capture::RecordMemorySample(device, memory->free_bytes, memory->total_bytes,
                              reason);
  return memory->free_bytes;
}

void SampleAfter(const DeviceEvent& event) noexcept {
  if (!TouchesDevice(event.kind)) return;
  const int device = CurrentDevice();
  if (event.result != 0) {
    if (event.result != kCudaOutOfMemory || event.total_bytes == 0) return;
    capture::RecordMemorySample(device, event.free_bytes, event.total_bytes,
                                SampleReason::kOom);
    return;
  }
  const bool first = device >= 0 && device < kMaxDevices &&
                     g_last[device].load(std::memory_order_relaxed) == 0;
  if (!TakeTurn(device, event.time, event.size >= kLargeBytes)) return;
  SampleNow(first ? SampleReason::kFirst : SampleReason::kEvent);
}

}  // namespace dstrace::hooks
