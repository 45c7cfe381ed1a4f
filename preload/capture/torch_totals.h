// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_TORCH_TOTALS_H_
#define DSTRACE_PRELOAD_CAPTURE_TORCH_TOTALS_H_

// PyTorch tells its totals with every event. They are written only when they
// are not what the event before and this one add up to, so that checking every
// event costs the log nothing.
//
// Thread-safe. PyTorch reports under its allocator's lock, so the reports of
// one device follow each other; the atomics keep a stray one from being a race.

#include <atomic>
#include <cstdint>

namespace dstrace::capture {

class TorchTotals {
 public:
  constexpr TorchTotals() noexcept = default;

  // False: write the totals. `written`: the event itself is in the log.
  [[nodiscard]] bool Agree(uint32_t device, int64_t size, uint64_t allocated,
                           uint64_t reserved, bool written) noexcept {
    if (device >= kDevices) return true;
    Device& last = devices_[device];
    // relaxed: ordered by PyTorch's lock, see above. Loads and stores, not
    // exchanges: those would cost as much as the rest of the event's record.
    const uint64_t before = last.allocated.load(std::memory_order_relaxed);
    const bool same_reserved =
        last.reserved.load(std::memory_order_relaxed) == reserved;
    last.allocated.store(allocated, std::memory_order_relaxed);
    if (!same_reserved) {
      last.reserved.store(reserved, std::memory_order_relaxed);
    }
    const bool adds_up = before + static_cast<uint64_t>(size) == allocated;
    return written && adds_up && same_reserved;
  }

  // Calls `visit(device, allocated, reserved)` for each that is not zero.
  template <typename Visit>
  void ForEach(Visit visit) const noexcept {
    for (uint32_t device = 0; device < kDevices; ++device) {
      // relaxed: the last report, or the one in flight.
      const uint64_t allocated =
          devices_[device].allocated.load(std::memory_order_relaxed);
      const uint64_t reserved =
          devices_[device].reserved.load(std::memory_order_relaxed);
      if (allocated != 0 || reserved != 0) visit(device, allocated, reserved);
    }
  }

  void Reset() noexcept {
    for (Device& device : devices_) {
      device.allocated.store(0, std::memory_order_relaxed);
      device.reserved.store(0, std::memory_order_relaxed);
    }
  }

 private:
  // Device type << 8 | index; CUDA is type 1. Others are not checked.
  static constexpr uint32_t kDevices = 2 << 8;
  // A cache line each: threads that work for different devices share nothing.
  struct alignas(64) Device {
    std::atomic<uint64_t> allocated{0};
    std::atomic<uint64_t> reserved{0};
  };
  Device devices_[kDevices];
};

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_TORCH_TOTALS_H_
