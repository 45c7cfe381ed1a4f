// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_MEMORY_SAMPLER_H_
#define DSTRACE_PRELOAD_HOOKS_MEMORY_SAMPLER_H_

// When to ask the driver how much of the device is used. Rarely enough not to
// be noticed: at most once per 2 ms and device, and always after a change of
// 32 MiB or more.
//
// Thread-safety: thread-safe. Call under runtime::Guard. Bytes.

#include <atomic>
#include <cstdint>

#include "preload/capture/recorder.h"

namespace dstrace::hooks {

// The current device's free and total memory; left alone if not known.
void QueryMemory(uint64_t& free_bytes, uint64_t& total_bytes) noexcept;

// Asks and records now, for the current context's device. Returns the free
// bytes, 0 if not known.
uint64_t SampleNow(capture::SampleReason reason) noexcept;

// What the current device loses during a call beyond the allocations recorded
// meanwhile. Other processes' use in that time is taken for ours.
class GrowthMeter {
 public:
  void Begin() noexcept;
  // Sets the event's size to the bytes lost, and its free and total bytes to
  // what the device then has; leaves it alone if that is not known.
  void End(capture::DeviceEvent& event) const noexcept;
  // Sets the event's size to the bytes that came back.
  void EndOfUnload(capture::DeviceEvent& event) const noexcept;

 private:
  uint64_t free_bytes_ = 0;
  uint64_t allocated_ = 0;
};

// Set once a graph of this process allocates: from then on launches change
// how much memory is in use, each is recorded, and with each sample the driver
// is asked what the nodes hold.
inline std::atomic<bool> g_graphs_allocate{false};

// Records what the memory nodes of graphs hold of `device`, if that changed
// since it was recorded last: a kGraph event named after the question,
// cuDeviceGetGraphMemAttribute, with the bytes as size. Returns the change.
uint64_t RecordGraphMemory(int device) noexcept;

// Records what the current pool of `device`, the current device, holds, if that
// changed since it was recorded last: a pool gives back what was freed into it
// at some later synchronization. A kPoolTrim event named after the question,
// cuMemPoolGetAttribute, with the bytes as offset. Asks nothing while the pool
// is known to be empty.
void RecordPoolMemory(int device) noexcept;

// The program asked cuMemGetInfo: its answer is a sample, unless the last one
// of the device was the same and is recent.
void SampleAsked(uint64_t free_bytes, uint64_t total_bytes) noexcept;

// After `event` was recorded: a sample if one is due.
void SampleAfter(const capture::DeviceEvent& event) noexcept;

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_MEMORY_SAMPLER_H_
