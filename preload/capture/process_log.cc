// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/process_log.h"

#include "preload/capture/header.h"
#include "preload/runtime/event_clock.h"
#include "preload/runtime/memory.h"
#include "proto/wire/records.h"
#include "proto/wire/slots.h"

namespace dstrace::capture {

bool ProcessLog::WriteLossSlots() noexcept {
  wire::Encoder record = chunk_->encoder();
  // The counts must be aligned words: an empty property fills the gap.
  //   82 01 | length | zero or more padding fields
  const auto address = reinterpret_cast<uintptr_t>(record.position());
  const size_t gap = (8 - (address + 3) % 8) % 8;
  wire::PutPadding(record, gap + 3);
  for (uint32_t cause = 1; cause < kLossCauses; ++cause) {
    uint8_t* const slot = record.position();
    wire::PutLossSlot(record, cause);
    if (!record.ok()) return false;
    auto* const count =
        reinterpret_cast<std::atomic<uint64_t>*>(slot + wire::kLossSlotCount);
    // relaxed: only this thread and CountLoss, which adds; nothing is ordered
    // by the number.
    count->fetch_add(early_[cause].exchange(0, std::memory_order_relaxed),
                     std::memory_order_relaxed);
    // release: pairs with the acquire in CountLoss.
    slots_[cause].store(count, std::memory_order_release);
  }
  return chunk_->Commit(record);
}

// After the loss slots, which end at an aligned address.
bool ProcessLog::WriteHistorySlot(uint64_t limit) noexcept {
  wire::Encoder record = chunk_->encoder();
  uint8_t* const slot = record.position();
  wire::PutHistorySlot(record, limit);
  // relaxed: read by threads that were let in after Start.
  history_.store(
      reinterpret_cast<std::atomic<uint64_t>*>(slot + wire::kHistorySlotStart),
      std::memory_order_relaxed);
  return chunk_->Commit(record);
}

bool ProcessLog::Start(log::LogFile& file, uint32_t thread,
                       const runtime::Config& config) noexcept {
  const runtime::MutexLock lock(mutex_);
  if (chunk_ == nullptr) {
    chunk_ =
        static_cast<log::ThreadLog*>(runtime::MapPages(sizeof(log::ThreadLog)));
  }
  if (chunk_ == nullptr) return false;
  chunk_->AdoptBy(thread);
  const uint64_t now = runtime::EventNow();
  if (!chunk_->EnsureRoom(file, wire::kPayloadBytes, now,
                          log::ChunkUse::kPinned)) {
    return false;
  }
  wire::Encoder header = chunk_->encoder();
  PutProcessHeader(header, now, config, file.crash_proof());
  if (!chunk_->Commit(header)) return false;
  started_ = WriteLossSlots() && (config.log_limit_bytes == 0 ||
                                  WriteHistorySlot(config.log_limit_bytes));
  return started_;
}

void ProcessLog::CountLoss(uint32_t cause) noexcept {
  if (cause >= kLossCauses) cause = 0;
  // acquire: pairs with the release in WriteLossSlots.
  std::atomic<uint64_t>* const slot =
      slots_[cause].load(std::memory_order_acquire);
  // relaxed: a counter orders nothing.
  (slot != nullptr ? *slot : early_[cause])
      .fetch_add(1, std::memory_order_relaxed);
}

void ProcessLog::Finish(log::LogFile& file) noexcept {
  const runtime::MutexLock lock(mutex_);
  if (!started_ || file.crash_proof()) return;
  started_ = false;
  for (auto& slot : slots_) slot.store(nullptr, std::memory_order_relaxed);
  history_.store(nullptr, std::memory_order_relaxed);  // recording is over
  chunk_->Close(file);
}

void ProcessLog::AbandonInChild() noexcept {
  mutex_.ResetAfterFork();
  started_ = false;
  if (chunk_ != nullptr) chunk_->AbandonInChild();
  // relaxed: a child of fork() has one thread.
  for (auto& slot : slots_) slot.store(nullptr, std::memory_order_relaxed);
  history_.store(nullptr, std::memory_order_relaxed);
  for (auto& count : early_) count.store(0, std::memory_order_relaxed);
}

}  // namespace dstrace::capture
