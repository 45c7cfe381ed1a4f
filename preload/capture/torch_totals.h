// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_TORCH_TOTALS_H_
#define DSTRACE_PRELOAD_CAPTURE_TORCH_TOTALS_H_

// PyTorch tells its totals with every event. They are written only when they
// are not what the event before and this one add up to, so that checking every
// event costs the log nothing.
//
// Thread-safe. PyTorch reports under its allocator's lock, so the reports of
// one device follow each other; the atomics keep a stray one from being a race.

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "preload/runtime/event_clock.h"
#include "preload/runtime/hot.h"
#include "preload/runtime/hot_page.h"

namespace dstrace::capture {

class TorchTotals {
 public:
  // The time of an event that torch reports now, later than that of all events
  // it has reported of this GPU. `floor`: the thread's last event, which its
  // log would take it for if it were earlier.
  //
  // To wait until the counter is read after torch's lock was taken costs a
  // training step as much as all else of an event without a stack. So it is
  // read without waiting, and the order comes from where torch's lock orders it
  // anyway: this line, which the event before has written.
  [[nodiscard, gnu::always_inline]] static inline uint64_t Now(
      uint32_t device, uint64_t floor) noexcept {
    const uint32_t gpu = device - kFirstGpu;
    if (__builtin_expect(gpu >= runtime::HotPage::kGpus, 0)) {
      return std::max(NowElsewhere(), floor);
    }
    std::atomic<uint64_t>& last = runtime::g_hot_page.page.gpus[gpu].time;
    // relaxed: ordered by PyTorch's lock, as below.
    const uint64_t now =
        std::max({runtime::EventNow<runtime::ClockOrder::kNone>(), floor,
                  last.load(std::memory_order_relaxed) + 1});
    last.store(now, std::memory_order_relaxed);
    return now;
  }

  // False: write the totals. `written`: the event itself is in the log.
  // `device`: type << 8 | index. Other devices than GPUs are not checked, nor
  // is a GPU past the 32nd.
  [[nodiscard]] static bool Agree(uint32_t device, int64_t size,
                                  uint64_t allocated, uint64_t reserved,
                                  bool written) noexcept {
    const uint32_t gpu = device - kFirstGpu;
    if (gpu >= runtime::HotPage::kGpus) return true;
    Totals& last = runtime::g_hot_page.page.gpus[gpu];
    // relaxed: ordered by PyTorch's lock, see above. Loads and stores, not
    // exchanges: those would cost as much as the rest of the event's record.
    const uint64_t before = last.allocated.load(std::memory_order_relaxed);
    const bool same_reserved =
        last.reserved.load(std::memory_order_relaxed) == reserved;
    last.allocated.store(allocated, std::memory_order_relaxed);
    last.reserved.store(reserved, std::memory_order_relaxed);
    const bool adds_up = before + static_cast<uint64_t>(size) == allocated;
    return (written & adds_up & same_reserved) != 0;  // one branch
  }

  // Calls `visit(device, allocated, reserved)` for each that is not zero.
  template <typename Visit>
  static void ForEach(Visit visit) noexcept {
    for (uint32_t gpu = 0; gpu < runtime::HotPage::kGpus; ++gpu) {
      const Totals& last = runtime::g_hot_page.page.gpus[gpu];
      // relaxed: the last report, or the one in flight.
      const uint64_t allocated = last.allocated.load(std::memory_order_relaxed);
      const uint64_t reserved = last.reserved.load(std::memory_order_relaxed);
      if (allocated != 0 || reserved != 0) {
        visit(kFirstGpu + gpu, allocated, reserved);
      }
    }
  }

  static void Reset() noexcept {
    for (Totals& last : runtime::g_hot_page.page.gpus) {
      last.allocated.store(0, std::memory_order_relaxed);
      last.reserved.store(0, std::memory_order_relaxed);
    }
  }

 private:
  DSTRACE_COLD static uint64_t NowElsewhere() noexcept;

  using Totals = runtime::HotPage::Totals;
  static constexpr uint32_t kFirstGpu = 1 << 8;  // torch's CUDA is type 1
};

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_TORCH_TOTALS_H_
