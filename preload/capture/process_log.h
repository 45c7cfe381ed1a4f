// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_PROCESS_LOG_H_
#define DSTRACE_PRELOAD_CAPTURE_PROCESS_LOG_H_

// The records that belong to the process and not to a thread: header, GPUs,
// properties, losses, end. They go to the file's first chunk, which stays
// mapped for the life of the process, so that a loss can be counted in place
// whatever else fails.
//
// Thread-safe.

#include <atomic>
#include <cstdint>
#include <string_view>

#include "preload/log/log_file.h"
#include "preload/log/thread_log.h"
#include "preload/runtime/config.h"
#include "preload/runtime/mutex.h"
#include "proto/wire/encoder.h"

namespace dstrace::capture {

class ProcessLog {
 public:
  static constexpr uint32_t kLossCauses = 10;  // as in proto/trace.proto

  constexpr ProcessLog() noexcept = default;

  // Writes the header and the loss slots into the first chunk of `file`.
  [[nodiscard]] bool Start(log::LogFile& file, uint32_t thread,
                           const runtime::Config& config) noexcept;

  // `now` of a record that carries no time: the next one's difference counts
  // from the one before it.
  static constexpr uint64_t kNoTime = 0;

  // One record, written by `put(Encoder&, uint64_t time_delta)`; dropped when
  // the chunk is full.
  template <typename Put>
  void Write(uint64_t now, Put put) noexcept {
    const runtime::MutexLock lock(mutex_);
    if (!started_) return;
    wire::Encoder record = chunk_->encoder();
    put(record, chunk_->TimeDelta(now));
    chunk_->Commit(record);
  }

  // May be called before Start; the count is written when the log opens.
  void CountLoss(uint32_t cause) noexcept;

  // Of a file with a limit: from `time` on its history is complete.
  void SetHistoryStart(uint64_t time) noexcept {
    // relaxed: only the file's lock holder calls this, and set by Start.
    if (auto* const slot = history_.load(std::memory_order_relaxed)) {
      // seq_cst: in the file before any place is written again.
      slot->store(time, std::memory_order_seq_cst);
    }
  }

  // Writes the chunk out where the file is not mapped.
  void Finish(log::LogFile& file) noexcept;
  void AbandonInChild() noexcept;

 private:
  bool WriteLossSlots() noexcept;
  bool WriteHistorySlot(uint64_t limit) noexcept;

  runtime::Mutex mutex_;  // chunk_, started_
  bool started_ = false;
  log::ThreadLog* chunk_ = nullptr;  // in pages of its own, never freed
  std::atomic<uint64_t> early_[kLossCauses] = {};
  // Set once by Start (release), read by CountLoss (acquire).
  std::atomic<std::atomic<uint64_t>*> slots_[kLossCauses] = {};
  std::atomic<std::atomic<uint64_t>*> history_{nullptr};
};

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_PROCESS_LOG_H_
