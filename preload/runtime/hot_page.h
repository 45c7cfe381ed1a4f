// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_HOT_PAGE_H_
#define DSTRACE_PRELOAD_RUNTIME_HOT_PAGE_H_

// What every event asks about the process, in one cache line of a page that
// the kernel hands to a child of fork() zeroed (MADV_WIPEONFORK, Linux 4.14):
// whichever way the child was made (fork, clone, a libc we do not know), it
// finds that nothing is being recorded and no clock is running, and looks
// closer.
//
// Thread-safe: atomics; who writes them says so.

#include <atomic>
#include <cstdint>

#include "preload/runtime/config.h"

namespace dstrace::runtime {

// A straight line from the processor's counter to CLOCK_MONOTONIC, see
// event_clock.h: ns = base_ns + (ticks - base_ticks) * scale / 2^32.
struct ClockLine {
  std::atomic<uint64_t> base_ticks;
  std::atomic<uint64_t> base_ns;
  std::atomic<uint32_t> scale;
};

struct HotPage {
  // Written by capture::Session.
  struct alignas(64) Line {
    std::atomic<bool> recording;
    std::atomic<StackMode> stacks;
    // The line in use is clock[clock_generation % 2]; the other one is written
    // and then comes into use with the next generation.
    std::atomic<uint32_t> clock_generation;
    ClockLine clock[2];
    // Written by the hook of torch's report: torch's own, once all is known of
    // the torch that calls.
    std::atomic<void*> torch_report;
  };
  static_assert(sizeof(Line) == 64);

  // Of the clock's slow path.
  struct alignas(64) ClockState {
    std::atomic<bool> usable;
    std::atomic<bool> busy;  // somebody is making the next line
    std::atomic<uint64_t> first_ticks;
    std::atomic<uint64_t> first_ns;
  };

  // What torch told last of a GPU, see capture/torch_totals.h. A line each:
  // threads that work for different GPUs share nothing.
  struct alignas(64) Totals {
    std::atomic<uint64_t> allocated;
    std::atomic<uint64_t> reserved;
    std::atomic<uint64_t> time;  // of that report's event, ns
  };
  static constexpr uint32_t kGpus = 32;

  Line hot;
  ClockState clock;
  Totals gpus[kGpus];
  std::atomic<bool> marked;  // of ForkPage
};

inline constexpr uintptr_t kHotPageBytes = 4096;
static_assert(sizeof(HotPage) <= kHotPageBytes);

// Zero until something is recorded. Alone in its page.
union alignas(kHotPageBytes) HotPageMemory {
  constexpr HotPageMemory() noexcept : page{} {}
  HotPage page;
  char bytes[kHotPageBytes];
};
extern constinit HotPageMemory g_hot_page;

inline HotPage::Line& Hot() noexcept { return g_hot_page.page.hot; }

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_HOT_PAGE_H_
