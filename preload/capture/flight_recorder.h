// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_FLIGHT_RECORDER_H_
#define DSTRACE_PRELOAD_CAPTURE_FLIGHT_RECORDER_H_

// Keeps what a file with a limit must not lose when old chunks are written
// again: all that is live, with its stack, as checkpoints.
//
//   tensors                   see live_tensors.h
//   device event              one lock, for the record and its change of the
//                             table
//   checkpoint                all locks: the tables are then exactly what the
//                             records so far amount to, and every later record
//                             has a later time
//
// Order of locks: LogFile's room lock, those of LiveTensors, of LiveEvents, of
// PinnedLog, of LogFile.
// docs/design/0005-bounded-logs.md. Thread-safe. Off (and free) without a
// limit.

#include <atomic>
#include <cstdint>

#include "preload/capture/live_events.h"
#include "preload/capture/live_tensors.h"
#include "preload/capture/pinned_log.h"
#include "preload/capture/process_log.h"
#include "preload/capture/torch_totals.h"
#include "preload/log/log_file.h"

namespace dstrace::capture {

class FlightRecorder {
 public:
  constexpr FlightRecorder(log::LogFile& file, ProcessLog& process) noexcept
      : file_(file), process_(process) {}

  [[nodiscard]] bool on() const noexcept { return on_; }
  // Before the file is opened. False: no memory.
  [[nodiscard]] bool Start(bool on) noexcept;
  [[nodiscard]] log::Checkpointer checkpointer() noexcept;

  [[nodiscard]] LiveTensors& tensors() noexcept { return tensors_; }
  [[nodiscard]] LiveEvents& events() noexcept { return events_; }
  [[nodiscard]] PinnedLog& pinned() noexcept { return pinned_; }

  // The time under which an event is recorded: after the last checkpoint.
  // With the lock of events() held.
  [[nodiscard]] uint64_t AfterCheckpoint(uint64_t time) noexcept {
    if (time > floor_) return time;
    return ++floor_;  // no two alike: their order is that of the records
  }

  // Between two events of a thread, which must hold no lock of ours.
  void CatchUpIfDue(LiveTensors::Changes& changes) noexcept {
    if (__builtin_expect(tensors_.ShouldCatchUp(changes), 0)) CatchUp();
  }

  // Whether one more event may be kept for ever.
  [[nodiscard]] bool MayPin() noexcept {
    // relaxed: a budget.
    return pinned_events_.fetch_add(1, std::memory_order_relaxed) < kMaxPinned;
  }

  void Finish() noexcept { pinned_.Finish(file_); }
  void AbandonInChild() noexcept;

 private:
  // About as many contexts and communicators as a process has in its life.
  static constexpr uint32_t kMaxPinned = 4096;

  static uint32_t SizeOf(void* self) noexcept;
  static bool Write(void* self, uint64_t* time) noexcept;
  static void Publish(void* self, uint64_t time) noexcept;

  void CatchUp() noexcept;
  bool CatchUp(uint64_t now) noexcept;
  bool WriteAll(uint64_t now) noexcept;
  bool WriteDevices(uint64_t now) noexcept;
  template <typename Putter>
  bool Put(size_t bytes, uint64_t now, Putter put) noexcept;

  log::LogFile& file_;
  ProcessLog& process_;
  bool on_ = false;
  std::atomic<uint32_t> pinned_events_{0};
  std::atomic<size_t> event_count_{0};  // of events_, read without its lock
  uint64_t floor_ = 0;                  // under the lock of events_
  LiveTensors tensors_;
  LiveEvents events_;
  PinnedLog pinned_;
  log::ThreadLog* log_ = nullptr;  // of checkpoints; in pages of its own
};

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_FLIGHT_RECORDER_H_
