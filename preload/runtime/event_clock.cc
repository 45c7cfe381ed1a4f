// SPDX-License-Identifier: Apache-2.0
#include "preload/runtime/event_clock.h"

#include <cpuid.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "preload/runtime/clock.h"

namespace dstrace::runtime {

constinit HotPageMemory g_hot_page;

namespace {

constexpr uint64_t kHorizon = uint64_t{1} << kClockHorizonBits;
// A line that has not been continued for so long is not continued but begun
// anew.
constexpr uint64_t kLongPause = 4 * kHorizon;
// Ticks from the first reading to the first line: 8 to 30 ms.
constexpr uint64_t kFirstMeasure = uint64_t{1} << 25;
// Nanoseconds that a line may be wrong by and still be continued: twice what
// the kernel's fastest slewing (500 ppm) makes of one.
constexpr int64_t kMostError = 100'000;

struct Reading {
  uint64_t ticks;
  uint64_t ns;
};

// Both clocks at once: of a few tries the one that took the fewest ticks.
Reading ReadBoth() noexcept {
  Reading best{};
  uint64_t best_gap = ~uint64_t{0};
  for (int i = 0; i < 4; ++i) {
    const uint64_t before = Ticks();
    const uint64_t ns = MonotonicNow();
    const uint64_t gap = Ticks() - before;
    if (gap >= best_gap) continue;
    best_gap = gap;
    best = {before + gap / 2, ns};
  }
  return best;
}

bool KernelTrustsCounter() noexcept {
  const int file =
      open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
           O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char text[64];
  const ssize_t size = read(file, text, sizeof text);
  close(file);
  if (size <= 0) return false;
  std::string_view name(text, static_cast<size_t>(size));
  if (name.back() == '\n') name.remove_suffix(1);
  // kvm-clock is a guest's view of the same counter.
  return name == "tsc" || name == "kvm-clock" ||
         name == "hyperv_clocksource_tsc_page";
}

// The counter runs at one rate in all states of the processor, and there is
// the instruction that reads it in order. Source: Intel SDM 17.17.1 (invariant
// TSC, leaf 80000007H) and CPUID leaf 80000001H.
bool ProcessorHasCounter() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000007, &a, &b, &c, &d) == 0 || (d >> 8 & 1) == 0) {
    return false;
  }
  return __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (d >> 27 & 1) != 0;
}

// By the one thread that holds `busy`.
void PublishLine(uint64_t ticks, uint64_t ns, uint64_t scale) noexcept {
  HotPage::Line& hot = Hot();
  const uint32_t next =
      hot.clock_generation.load(std::memory_order_relaxed) + 1;
  ClockLine& line = hot.clock[next % 2];
  // release, each: a reader that meets one of them while it still goes by the
  // generation before the last sees the last one in its second look.
  line.base_ticks.store(ticks, std::memory_order_release);
  line.base_ns.store(ns, std::memory_order_release);
  line.scale.store(static_cast<uint32_t>(scale), std::memory_order_release);
  // release: pairs with the acquire in EventNow().
  hot.clock_generation.store(next, std::memory_order_release);
}

void Forget() noexcept {
  HotPage::ClockState& state = g_hot_page.page.clock;
  state.first_ns.store(0, std::memory_order_relaxed);
  PublishLine(0, 0, 0);
}

// 2^32 times the nanoseconds of a tick since the first reading.
uint64_t MeasuredScale(const Reading& now) noexcept {
  HotPage::ClockState& state = g_hot_page.page.clock;
  const auto ns = now.ns - state.first_ns.load(std::memory_order_relaxed);
  const auto ticks =
      now.ticks - state.first_ticks.load(std::memory_order_relaxed);
  return ticks == 0 ? 0
                    : static_cast<uint64_t>(
                          (static_cast<unsigned __int128>(ns) << 32) / ticks);
}

// Before there is a line: the first reading, and the first line 2^25 ticks
// later. (relaxed throughout: only the holder of `busy` reads and writes.)
void Begin() noexcept {
  HotPage::ClockState& state = g_hot_page.page.clock;
  const Reading now = ReadBoth();
  if (state.first_ns.load(std::memory_order_relaxed) == 0) {
    state.first_ticks.store(now.ticks, std::memory_order_relaxed);
    state.first_ns.store(now.ns, std::memory_order_relaxed);
    return;
  }
  if (now.ticks - state.first_ticks.load(std::memory_order_relaxed) <
      kFirstMeasure) {
    return;
  }
  const uint64_t scale = MeasuredScale(now);
  if (scale == 0 || scale >> 32 != 0) {  // slower than 1 GHz
    state.usable.store(false, std::memory_order_relaxed);
    return;
  }
  PublishLine(now.ticks, now.ns, scale);
}

// acquire, each: as in EventNow().
uint64_t Since(const ClockLine& line, uint64_t ticks) noexcept {
  return ticks - line.base_ticks.load(std::memory_order_acquire);
}
uint64_t At(const ClockLine& line, uint64_t ticks) noexcept {
  return line.base_ns.load(std::memory_order_acquire) +
         (Since(line, ticks) * line.scale.load(std::memory_order_acquire) >>
          32);
}

// A counter or a clock that has jumped: the rate is measured anew.
void Continue(const ClockLine& line) noexcept {
  const Reading now = ReadBoth();
  const uint64_t since = Since(line, now.ticks);
  const auto scale = static_cast<int64_t>(MeasuredScale(now));
  const int64_t change =
      scale - int64_t{line.scale.load(std::memory_order_relaxed)};
  if (static_cast<int64_t>(since) < 0 || scale >> 32 != 0 ||
      std::abs(change) > scale >> 9) {
    return Forget();
  }
  if (since >= kLongPause) {
    return PublishLine(now.ticks, now.ns, static_cast<uint64_t>(scale));
  }
  const uint64_t reached = At(line, now.ticks);
  const auto error = static_cast<int64_t>(now.ns - reached);
  if (std::abs(error) > kMostError) return Forget();
  // Makes up for the error by the end of the line.
  const int64_t inclined =
      scale + error * (int64_t{1} << (32 - kClockHorizonBits));
  if (inclined >> 32 != 0) return Forget();
  PublishLine(now.ticks, reached, static_cast<uint64_t>(inclined));
}

// One thread at a time; the others go on with what there is.
void Renew() noexcept {
  HotPage::ClockState& state = g_hot_page.page.clock;
  // acquire, release: what the holder before has written is seen.
  if (state.busy.exchange(true, std::memory_order_acquire)) return;
  HotPage::Line& hot = Hot();
  const ClockLine& line =
      hot.clock[hot.clock_generation.load(std::memory_order_relaxed) % 2];
  if (line.scale.load(std::memory_order_relaxed) == 0) {
    Begin();
  } else if (Since(line, Ticks()) >= kHorizon) {
    Continue(line);
  }
  state.busy.store(false, std::memory_order_release);
}

}  // namespace

uint64_t SlowEventNow() noexcept {
  // relaxed: set before the first event of the process.
  if (!g_hot_page.page.clock.usable.load(std::memory_order_relaxed)) {
    return MonotonicNow();
  }
  Renew();
  const HotPage::Line& hot = Hot();
  for (;;) {  // a second turn only where a line was made meanwhile
    // acquire, and the second look: as in EventNow().
    const uint32_t generation =
        hot.clock_generation.load(std::memory_order_acquire);
    const ClockLine& line = hot.clock[generation % 2];
    const bool is_line = line.scale.load(std::memory_order_acquire) != 0;
    const uint64_t ticks = Ticks();
    const uint64_t now = At(line, ticks);
    // Past its end too: the next one begins where this one leads.
    const bool is_good = is_line && Since(line, ticks) < kLongPause;
    if (hot.clock_generation.load(std::memory_order_relaxed) == generation) {
      return is_good ? now : MonotonicNow();
    }
  }
}

void StartEventClock() noexcept {
  g_hot_page.page.clock.usable.store(
      ProcessorHasCounter() && KernelTrustsCounter(),
      std::memory_order_relaxed);
}

}  // namespace dstrace::runtime
