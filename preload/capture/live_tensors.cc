// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/live_tensors.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "preload/runtime/event_clock.h"
#include "preload/runtime/memory.h"

namespace dstrace::capture {
namespace {

using Tensor = LiveTensors::Tensor;

// Nanoseconds. A store is out of the store buffer, and an instruction that was
// executed early has been overtaken, after a fraction of this.
constexpr uint64_t kSettling = 20'000;
// A thread that holds a lock the program's other threads wait for may be
// waiting for one of ours in turn. It is not waited for for ever.
constexpr uint64_t kPatience = 100'000'000;

// Changes that are kept beside the table, whatever its size.
constexpr size_t kManyChanges = 65536;
// Times a thread asks whether there are that many, for each look.
constexpr uint32_t kLookEvery = 128;

// A thread may end without a word, by a system call of its own.
bool IsGone(uint32_t thread) noexcept {
  return syscall(SYS_tgkill, getpid(), thread, 0) != 0 && errno == ESRCH;
}

Tensor EventOf(const wire::RecentTensor& slot, uint32_t thread) noexcept {
  return {.key = slot.address,
          .size = slot.size > 0 ? static_cast<uint64_t>(slot.size) : 0,
          .time = slot.time,
          .stack = wire::RecentStack(slot.stack_device_tag),
          .device = wire::RecentDevice(slot.stack_device_tag),
          .thread = thread};
}

}  // namespace

LiveTensors::Changes* LiveTensors::Register(log::ThreadLog& log) noexcept {
  void* const memory = runtime::MapPages(sizeof(Changes));
  if (memory == nullptr) return nullptr;
  auto* const changes = new (memory) Changes;
  changes->log_ = &log;
  const runtime::MutexLock lock(mutex_);
  // relaxed: written under this lock.
  changes->next_ = first_.load(std::memory_order_relaxed);
  first_.store(changes, std::memory_order_release);
  return changes;
}

bool LiveTensors::Add(Changes& changes, const Tensor& event) noexcept {
  Tensor* const last = changes.last_.Take(event.key);
  if (last == nullptr) return event.key == 0;
  *last = event;
  const int64_t net = event.size != 0 ? 1 : -1;
  // relaxed: written under the lock; see the members.
  changes.net_.store(changes.net_.load(std::memory_order_relaxed) + net,
                     std::memory_order_relaxed);
  changes.count_.store(changes.last_.size(), std::memory_order_relaxed);
  return true;
}

// Of the batch what is later than the last CatchUp(), up to `until`. One look
// for all of them first: the lines arrive side by side.
bool LiveTensors::AddRecent(Changes& changes, uint64_t until) noexcept {
  const log::ThreadLog& log = *changes.log_;
  log.ForEachRecent([&](const wire::RecentTensor& slot) {
    changes.last_.Prefetch(slot.address);
    return true;
  });
  bool ok = true;
  log.ForEachRecent([&](const wire::RecentTensor& slot) {
    if (slot.time > until) return false;
    if (slot.time <= caught_up_) return true;  // it is in the table
    ok &= Add(changes, EventOf(slot, log.thread()));
    return true;
  });
  return ok;
}

bool LiveTensors::Settle(Changes& changes) noexcept {
  if (!changes.log_->HasBatch()) return true;
  const runtime::MutexLock lock(changes.mutex_);
  const bool ok = AddRecent(changes, UINT64_MAX);
  changes.log_->TakeBatch();
  return ok;
}

void LiveTensors::LockAll() noexcept {
  mutex_.Lock();
  ForEachChanges([](Changes& changes) { changes.mutex_.Lock(); });
}

void LiveTensors::UnlockAll() noexcept {
  ForEachChanges([](Changes& changes) { changes.mutex_.Unlock(); });
  mutex_.Unlock();
}

// Until no thread is at an event of a time up to `time`.
bool LiveTensors::Wait(uint64_t time) const noexcept {
  while (runtime::EventNow() <= time + kSettling) {
  }
  for (Changes* c = first_.load(std::memory_order_acquire); c != nullptr;
       c = c->next_) {
    while (c->log_->IsInEvent()) {
      sched_yield();
      if (runtime::EventNow() <= time + kPatience) continue;
      if (!IsGone(c->log_->thread())) return false;
      c->log_->EndEvent();
    }
  }
  return true;
}

// Into the table; the latest of each address stays.
bool LiveTensors::Merge(Changes& changes) noexcept {
  bool ok = true;
  changes.last_.ForEach([&](const Tensor& event) {
    Tensor* const entry = table_.Take(event.key);
    ok &= entry != nullptr;
    if (entry != nullptr && entry->time <= event.time) *entry = event;
  });
  changes.last_.Empty();
  // relaxed: written under the lock; see the members.
  changes.count_.store(0, std::memory_order_relaxed);
  changes.net_.store(0, std::memory_order_relaxed);
  return ok;
}

LiveTensors::Outcome LiveTensors::CatchUp(uint64_t time) noexcept {
  if (!Wait(time)) return Outcome::kBusy;
  bool ok = true;
  ForEachChanges([&](Changes& changes) { ok &= AddRecent(changes, time); });
  ForEachChanges([&](Changes& changes) { ok &= Merge(changes); });
  table_.EraseIf([](const Tensor& tensor) { return tensor.size == 0; });
  caught_up_ = time;
  // relaxed: an estimate.
  table_size_.store(table_.size(), std::memory_order_relaxed);
  return ok ? Outcome::kDone : Outcome::kNoMemory;
}

bool LiveTensors::ShouldCatchUp(Changes& changes) const noexcept {
  if (++changes.asked_ % kLookEvery != 0) return false;
  size_t count = 0;
  ForEachChanges([&count](const Changes& other) {
    count += other.count_.load(std::memory_order_relaxed);
  });
  return count > kManyChanges + table_size_.load(std::memory_order_relaxed);
}

size_t LiveTensors::size() const noexcept {
  auto sum = static_cast<int64_t>(table_size_.load(std::memory_order_relaxed));
  ForEachChanges([&sum](const Changes& changes) {
    sum += changes.net_.load(std::memory_order_relaxed);
  });
  return static_cast<size_t>(std::max<int64_t>(sum, 0));
}

void LiveTensors::Reset() noexcept {
  mutex_.ResetAfterFork();
  // relaxed: one thread is left. What the parent's threads did is leaked with
  // their states.
  first_.store(nullptr, std::memory_order_relaxed);
  table_.Clear();
  table_size_.store(0, std::memory_order_relaxed);
  caught_up_ = 0;
}

}  // namespace dstrace::capture
