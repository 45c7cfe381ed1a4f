// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_PINNED_LOG_H_
#define DSTRACE_PRELOAD_CAPTURE_PINNED_LOG_H_

// Chunks of a file with a limit that are never recycled: definitions, and
// events that are few and matter for ever (contexts, communicators).
//
// Thread-safe, one lock. Holds the file's lock inside its own.

#include <cstdint>

#include "preload/log/log_file.h"
#include "preload/log/thread_log.h"
#include "preload/runtime/memory.h"
#include "preload/runtime/mutex.h"
#include "proto/wire/records.h"

namespace dstrace::capture {

class PinnedLog {
 public:
  constexpr PinnedLog() noexcept = default;

  // False: no memory.
  [[nodiscard]] bool Start() noexcept {
    const runtime::MutexLock lock(mutex_);
    if (log_ == nullptr) {
      log_ = static_cast<log::ThreadLog*>(
          runtime::MapPages(sizeof(log::ThreadLog)));
    }
    return log_ != nullptr;
  }

  // Room for one record of `bytes`. False: there is no space.
  [[nodiscard]] bool Reserve(log::LogFile& file, size_t bytes,
                             uint64_t now) noexcept {
    const runtime::MutexLock lock(mutex_);
    return log_->EnsureRoom(file, bytes + kThreadRecord, now,
                            log::ChunkUse::kPinned);
  }

  // One record of at most `bytes`, by `put(Encoder&, uint64_t time_delta)`.
  // `now` is 0 for a record without a time.
  template <typename Put>
  bool Write(log::LogFile& file, size_t bytes, uint32_t thread, uint64_t now,
             uint64_t opened, Put put) noexcept {
    const runtime::MutexLock lock(mutex_);
    if (!log_->EnsureRoom(file, bytes + kThreadRecord, opened,
                          log::ChunkUse::kPinned)) {
      return false;
    }
    log_->AdoptBy(thread);
    if (now != 0 && log_->NeedsThreadRecord()) {
      wire::Encoder record = log_->encoder();
      wire::PutThread(record, thread, {});
      if (log_->Commit(record)) log_->NoteThreadRecorded();
    }
    wire::Encoder record = log_->encoder();
    put(record, log_->TimeDelta(now));
    return log_->Commit(record);
  }

  void Finish(log::LogFile& file) noexcept {
    const runtime::MutexLock lock(mutex_);
    if (log_ != nullptr) log_->Close(file);
  }
  void AbandonInChild() noexcept {
    mutex_.ResetAfterFork();
    if (log_ != nullptr) log_->AbandonInChild();
  }

 private:
  static constexpr size_t kThreadRecord = 32;

  runtime::Mutex mutex_;
  log::ThreadLog* log_ = nullptr;  // in pages of its own, never freed
};

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_PINNED_LOG_H_
