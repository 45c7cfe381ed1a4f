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

// What was recorded last of each device.
std::atomic<uint64_t> g_graph_reserved[kMaxDevices];
std::atomic<uint64_t> g_last_free[kMaxDevices];
// By some pool of each device.
std::atomic<uint64_t> g_pool_reserved[kMaxDevices];

// Bytes of recorded allocations since the start, all devices: tells what of a
// difference between two answers of the driver is accounted for already.
std::atomic<uint64_t> g_allocated{0};

void NoteAllocated(const DeviceEvent& event) noexcept {
  if (event.kind == DeviceKind::kPoolAlloc && event.offset != 0 &&
      event.device >= 0 && event.device < kMaxDevices) {
    // relaxed: as with graphs, the later answer stands.
    g_pool_reserved[event.device].store(event.offset,
                                        std::memory_order_relaxed);
  }
  switch (event.kind) {
    case DeviceKind::kAlloc:
    case DeviceKind::kPoolAlloc:
    case DeviceKind::kPhysicalCreate:
    case DeviceKind::kArrayCreate:
      if (event.result != 0 || event.device == capture::kDeviceHost) return;
      // relaxed: a sum; a racing allocation is off by one call at most.
      g_allocated.fetch_add(event.size, std::memory_order_relaxed);
      return;
    default:
      return;
  }
}

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
  RecordGraphMemory(device);
  RecordPoolMemory(device);
  capture::RecordMemorySample(device, memory->free_bytes, memory->total_bytes,
                              reason);
  return memory->free_bytes;
}

uint64_t RecordGraphMemory(int device) noexcept {
  // relaxed: set by an earlier call of the thread that needs the answer.
  if (!g_graphs_allocate.load(std::memory_order_relaxed)) return 0;
  if (device < 0 || device >= kMaxDevices) return 0;
  const std::optional<uint64_t> now = GraphReservedBytes(device);
  if (!now) return 0;
  // relaxed: of two threads that ask at once, the later answer stands.
  const uint64_t before =
      g_graph_reserved[device].exchange(*now, std::memory_order_relaxed);
  if (before == *now) return 0;
  DeviceEvent event;
  event.kind = DeviceKind::kGraph;
  event.api = "cuDeviceGetGraphMemAttribute";
  event.size = *now;
  event.device = device;
  capture::RecordDevice(event);
  return before < *now ? *now - before : before - *now;
}

void RecordPoolMemory(int device) noexcept {
  if (device < 0 || device >= kMaxDevices) return;
  std::atomic<uint64_t>& reserved = g_pool_reserved[device];
  // relaxed: set by an earlier allocation; a racing one asks for itself.
  if (reserved.load(std::memory_order_relaxed) == 0 || !CanMeasure()) return;
  DeviceEvent event;
  event.kind = DeviceKind::kPoolTrim;
  event.api = "cuMemPoolGetAttribute";
  const CUmemoryPool pool = CurrentPool();
  const std::optional<uint64_t> now = PoolMemory(pool);
  if (!now) return;
  // relaxed: of two threads that ask at once, the later answer stands.
  if (reserved.exchange(*now, std::memory_order_relaxed) == *now) return;
  event.pool = reinterpret_cast<uint64_t>(pool);
  event.offset = *now;
  event.device = device;
  capture::RecordDevice(event);
}

void SampleAsked(uint64_t free_bytes, uint64_t total_bytes) noexcept {
  const int device = CurrentDevice();
  if (device < 0 || device >= kMaxDevices || !capture::IsRecording()) return;
  // relaxed: one sample more or less does no harm.
  const bool same = g_last_free[device].exchange(
                        free_bytes, std::memory_order_relaxed) == free_bytes;
  if (!TakeTurn(device, capture::Now(), !same)) return;
  RecordGraphMemory(device);
  RecordPoolMemory(device);
  capture::RecordMemorySample(device, free_bytes, total_bytes,
                              SampleReason::kEvent);
}

void GrowthMeter::Begin() noexcept {
  allocated_ =
      g_allocated.load(std::memory_order_relaxed);  // see NoteAllocated
  uint64_t total = 0;
  QueryMemory(free_bytes_, total);
}

void GrowthMeter::End(DeviceEvent& event) const noexcept {
  if (free_bytes_ == 0) return;
  const std::optional<DeviceMemory> now = CurrentMemory();
  if (!now) return;
  const uint64_t allocated =
      g_allocated.load(std::memory_order_relaxed) - allocated_;
  const uint64_t expected =
      free_bytes_ > allocated ? free_bytes_ - allocated : 0;
  if (now->free_bytes >= expected) return;
  event.size = expected - now->free_bytes;
  event.free_bytes = now->free_bytes;
  event.total_bytes = now->total_bytes;
}

void GrowthMeter::EndOfUnload(DeviceEvent& event) const noexcept {
  if (free_bytes_ == 0) return;
  const std::optional<DeviceMemory> now = CurrentMemory();
  if (!now || now->free_bytes <= free_bytes_) return;
  event.size = now->free_bytes - free_bytes_;
  event.free_bytes = now->free_bytes;
  event.total_bytes = now->total_bytes;
}

void SampleAfter(const DeviceEvent& event) noexcept {
  NoteAllocated(event);
  if (event.kind == DeviceKind::kModuleLoad ||
      event.kind == DeviceKind::kModuleUnload) {
    // The answer that the event's size comes from, after the event itself, so
    // that a reader never sees the one without the other.
    if (event.result != 0 || event.total_bytes == 0) return;
    capture::RecordMemorySample(event.device, event.free_bytes,
                                event.total_bytes, SampleReason::kModule);
    return;
  }
  if (!TouchesDevice(event.kind)) return;
  const int device = CurrentDevice();
  if (event.result != 0) {
    if (event.result != kCudaOutOfMemory || event.total_bytes == 0) return;
    capture::RecordMemorySample(device, event.free_bytes, event.total_bytes,
                                SampleReason::kOom);
    return;
  }
  const bool graph = event.kind == DeviceKind::kGraph;
  const uint64_t changed = graph ? RecordGraphMemory(device) : event.size;
  const bool first = device >= 0 && device < kMaxDevices &&
                     g_last[device].load(std::memory_order_relaxed) == 0;
  if (!TakeTurn(device, event.time, changed >= kLargeBytes)) return;
  SampleNow(first ? SampleReason::kFirst : SampleReason::kEvent);
}

}  // namespace dstrace::hooks
