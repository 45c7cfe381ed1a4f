// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_LIVE_TENSORS_H_
#define DSTRACE_PRELOAD_CAPTURE_LIVE_TENSORS_H_

// The blocks torch has handed out, for checkpoints of a file with a limit.
//
//   event -> the chunk's recent slots       no lock, as without a limit
//            | a batch is full: Settle()    the thread's own lock
//            v
//            Changes of the thread          what it did last with each address
//            | a checkpoint: CatchUp()      all of them
//            v
//            table                          what is live
//
// Threads settle their batches in any order, and what one has allocated another
// one frees. So a thread keeps the last of its events of each address, a free
// too, and where they meet the latest counts: the times of events are in the
// order of events (TorchTotals::Now).
//
// CatchUp(time) takes in every event that is not later than `time`, and no
// other. A thread between its event's time and its slot says so
// (ThreadLog::BeginEvent), and is waited for. That word is not fenced: it is
// looked at some microseconds after `time`, when what was stored before that
// instant has long left the processor's store buffer.
// docs/design/0011-live-set-in-batches.md.
//
// Thread-safe.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "preload/capture/open_table.h"
#include "preload/log/thread_log.h"
#include "preload/runtime/mutex.h"

namespace dstrace::capture {

class LiveTensors {
 public:
  struct Tensor {
    uint64_t key;   // its address
    uint64_t size;  // bytes; of a change 0 says that it was freed
    uint64_t time;
    uint32_t stack;
    uint32_t device;  // type << 8 | index
    uint32_t thread;
  };

  // What one thread did since the last CatchUp().
  class Changes {
   public:
    // Held by the thread while it begins or takes a batch. So whoever holds it
    // finds a batch that only grows.
    [[nodiscard]] runtime::Mutex& mutex() noexcept { return mutex_; }

   private:
    friend class LiveTensors;

    runtime::Mutex mutex_;  // all below but asked_
    log::ThreadLog* log_ = nullptr;
    OpenTable<Tensor> last_;  // by address
    // Written under the lock, read without it: relaxed, for estimates.
    std::atomic<size_t> count_{0};  // of last_
    std::atomic<int64_t> net_{0};   // allocations less frees
    Changes* next_ = nullptr;
    uint32_t asked_ = 0;  // the thread's own: see ShouldCatchUp()
  };

  constexpr LiveTensors() noexcept = default;
  LiveTensors(const LiveTensors&) = delete;
  LiveTensors& operator=(const LiveTensors&) = delete;

  // For a thread's events, before its first one; `log` is where they go, for
  // ever. nullptr: no memory.
  [[nodiscard]] Changes* Register(log::ThreadLog& log) noexcept;

  // The thread's batch, if it has one, goes into its chunk's payload and into
  // its changes. False: no memory; some of it may be missing from checkpoints.
  [[nodiscard]] bool Settle(Changes& changes) noexcept;
  // One event that the log has no room for; of a free `size` is 0. With the
  // lock of `changes` held. As Settle().
  [[nodiscard]] bool Add(Changes& changes, const Tensor& event) noexcept;

  // Until UnlockAll() no thread begins or takes a batch, and none registers.
  void LockAll() noexcept;
  void UnlockAll() noexcept;
  // With all locks held and `time` just read: the table is what all events up
  // to `time` amount to. kBusy: a thread is stuck in the middle of an event,
  // and nothing has changed. kNoMemory: some are missing.
  enum class Outcome : uint8_t { kDone, kBusy, kNoMemory };
  [[nodiscard]] Outcome CatchUp(uint64_t time) noexcept;
  // After CatchUp(), with all locks held.
  template <typename Visit>
  void ForEach(Visit visit) noexcept {
    table_.ForEach(visit);
  }

  // Whether all changes together have become so many that they should be taken
  // in without a checkpoint: they are memory too. Asked by the thread for each
  // batch, and for each event without room; looks once in 128 times.
  [[nodiscard]] bool ShouldCatchUp(Changes& changes) const noexcept;

  // Without a lock: about how many are live.
  [[nodiscard]] size_t size() const noexcept;

  // In a child of fork(), whose threads register anew.
  void Reset() noexcept;

 private:
  // Of each thread that has registered, by `visit(Changes&)`.
  template <typename Visit>
  void ForEachChanges(Visit visit) const noexcept {
    for (Changes* c = first_.load(std::memory_order_acquire); c != nullptr;
         c = c->next_) {
      visit(*c);
    }
  }
  bool Wait(uint64_t time) const noexcept;
  bool AddRecent(Changes& changes, uint64_t until) noexcept;
  bool Merge(Changes& changes) noexcept;

  // Held while all are; guards the list, and the table.
  runtime::Mutex mutex_;
  // release where one is added, acquire where they are walked through: who
  // finds one finds it complete.
  std::atomic<Changes*> first_{nullptr};
  OpenTable<Tensor> table_;
  std::atomic<size_t> table_size_{0};  // relaxed: for estimates
  // What is not later is in the table. Written with all locks held, read with
  // one.
  uint64_t caught_up_ = 0;
};

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_LIVE_TENSORS_H_
