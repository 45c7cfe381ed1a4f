// SPDX-License-Identifier: Apache-2.0
#include "preload/runtime/fork_gate.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "preload/runtime/clock.h"

namespace dstrace::runtime {
namespace {

// How long a fork waits for threads to leave. An unwind takes microseconds, its
// first ones milliseconds; on a machine with more threads than cores one that
// is inside may not run for a good part of a second.
constexpr uint64_t kPatience = 2'000'000'000;  // ns

constexpr int kSlots = 64;
struct alignas(64) Slot {
  std::atomic<uint32_t> inside{0};
};
Slot g_slots[kSlots];

std::atomic<uint32_t> g_forks{0};  // now going on
std::atomic<bool> g_for_good{false};

// By the thread's own block, which is page-sized or more.
Slot& OwnSlot() noexcept {
  const auto thread = reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
  return g_slots[(thread * 0x9E3779B97F4A7C15u) >> 58];
}

bool IsClosed() noexcept {
  // seq_cst: after the addition in Visit; pairs with CloseForFork, which adds
  // to g_forks and then looks at the slots.
  return g_forks.load(std::memory_order_seq_cst) != 0 ||
         g_for_good.load(std::memory_order_relaxed);  // set while single
}

bool AnyoneInside() noexcept {
  for (const Slot& slot : g_slots) {
    // seq_cst: after g_forks; pairs with the addition in Visit.
    if (slot.inside.load(std::memory_order_seq_cst) != 0) return true;
  }
  return false;
}

void Pause() noexcept {
  constexpr timespec kTime = {0, 50'000};
  const int saved_errno = errno;
  syscall(SYS_nanosleep, &kTime, nullptr);  // libc's can be cancelled
  errno = saved_errno;
}

}  // namespace

bool ForkGate::TryEnter() noexcept {
  // seq_cst: before IsClosed; pairs with AnyoneInside.
  OwnSlot().inside.fetch_add(1, std::memory_order_seq_cst);
  if (__builtin_expect(!IsClosed(), 1)) return true;
  OwnSlot().inside.fetch_sub(1, std::memory_order_relaxed);  // was not inside
  return false;
}

ForkGate::Visit::Visit(Patience patience) noexcept : entered_(TryEnter()) {
  if (__builtin_expect(entered_, 1) || patience == Patience::kNone) return;
  const uint64_t begun = MonotonicNow();
  while (!entered_ && !closed_for_good()) {
    if (MonotonicNow() - begun > kPatience) {
      // The fork waits for this very thread, it seems.
      OwnSlot().inside.fetch_add(1, std::memory_order_seq_cst);
      entered_ = true;
      return;
    }
    Pause();
    entered_ = TryEnter();
  }
}

ForkGate::Visit::~Visit() {
  // release: pairs with AnyoneInside; the unwinder's locks are free by then.
  if (entered_) OwnSlot().inside.fetch_sub(1, std::memory_order_release);
}

void ForkGate::CloseForFork() noexcept {
  // seq_cst: before AnyoneInside; pairs with IsClosed.
  g_forks.fetch_add(1, std::memory_order_seq_cst);
  const uint64_t begun = MonotonicNow();
  while (AnyoneInside() && MonotonicNow() - begun < kPatience) {
    Pause();
  }
}

void ForkGate::OpenInParent() noexcept {
  // relaxed: what was closed can be entered late.
  g_forks.fetch_sub(1, std::memory_order_relaxed);
}

void ForkGate::AdoptChild() noexcept {
  // relaxed, here and below: a child of fork() has one thread.
  if (AnyoneInside()) g_for_good.store(true, std::memory_order_relaxed);
  for (Slot& slot : g_slots) slot.inside.store(0, std::memory_order_relaxed);
  g_forks.store(0, std::memory_order_relaxed);
}

bool ForkGate::closed_for_good() noexcept {
  return g_for_good.load(std::memory_order_relaxed);  // set while single
}

}  // namespace dstrace::runtime
