// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_LOG_THREAD_LOG_H_
#define DSTRACE_PRELOAD_LOG_THREAD_LOG_H_

// One thread's place in the log: its open chunk, the time of its last record
// and the dictionary of blocks named in the chunk.
//
//   uint8_t* chunk  ->  | header | record record record |  free  | recent |
//                                                       ^ used_
//
// Usage: EnsureRoom(n), then write at most n bytes through encoder(), then
// Commit(). Nothing of a record is visible to a reader before Commit(). For
// tensors there is a shorter way, see AddRecent().
//
// Thread-safety: one thread at a time; a ThreadLog may be handed from an exited
// thread to a new one (AdoptBy), which is why short-lived threads do not cost a
// chunk each. Lives in zeroed pages (see capture/thread_state.h).

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "preload/log/log_file.h"
#include "preload/runtime/hot.h"
#include "proto/wire/encoder.h"
#include "proto/wire/layout.h"
#include "proto/wire/tensor_record.h"

namespace dstrace::log {

// The blocks a chunk has named in full, so that the next mention is one or two
// bytes. Mirrored by the reader: slots are given in order of literal mention.
//
// A look-up is one cache line: an entry is a whole block, in 16 bytes. A block
// that does not fit into them (an address over 48 bits, a terabyte) is named in
// full each time.
class BlockDictionary {
 public:
  static constexpr uint32_t kSlots = 4096;

  void Clear() noexcept;

  DSTRACE_PREFETCH void Prefetch(uint64_t address, uint64_t size,
                                 uint32_t device) const noexcept {
    runtime::Prefetch(&index_[HashOf(PlaceOf(address, device), size)]);
  }
  // The block's slot + 1, or 0: it is not known in this chunk.
  [[nodiscard]] uint32_t Find(uint64_t address, uint64_t size,
                              uint32_t device) const noexcept {
    if (__builtin_expect(!Fits(address, size, device), 0)) return 0;
    const uint64_t place = PlaceOf(address, device);
    const uint64_t rest = uint64_t{epoch_} << kEpochShift | size;
    for (uint32_t at = HashOf(place, size);
         index_[at].rest >> kEpochShift == epoch_; at = (at + 1) % kIndexSize) {
      const uint64_t slot = index_[at].rest ^ rest;  // if it is this block's
      if (index_[at].place == place && (slot & ~kSlotMask) == 0) {
        return static_cast<uint32_t>(slot >> kSlotShift) + 1;
      }
    }
    return 0;
  }

  // Names a block that Find() does not know in full; it is known from here on.
  [[nodiscard]] wire::BlockRef Add(uint64_t address, uint64_t size,
                                   uint32_t device) noexcept;

 private:
  struct Entry {
    uint64_t place;  // address | device << 48
    uint64_t rest;   // size | slot << 40 | epoch << 52
  };
  static constexpr int kDeviceShift = 48;
  static constexpr int kSlotShift = 40;
  static constexpr int kEpochShift = 52;
  static_assert(kSlots == 1u << (kEpochShift - kSlotShift));
  static constexpr uint32_t kMaxEpoch = (1u << (64 - kEpochShift)) - 1;
  static constexpr uint64_t kSlotMask = uint64_t{kSlots - 1} << kSlotShift;
  static constexpr uint32_t kIndexBits = 13;
  static constexpr uint32_t kIndexSize = 1u << kIndexBits;

  static bool Fits(uint64_t address, uint64_t size, uint32_t device) noexcept {
    return (address >> kDeviceShift | size >> kSlotShift |
            device >> (64 - kDeviceShift)) == 0;
  }
  static uint64_t PlaceOf(uint64_t address, uint32_t device) noexcept {
    return address | uint64_t{device} << kDeviceShift;
  }
  // Block addresses are multiples of 512 and close together; the multiplier
  // (2^64 / golden ratio) spreads them over the high bits. The size is part of
  // the key: an allocator cuts the same place differently from step to step,
  // and each cut comes back.
  static uint32_t HashOf(uint64_t place, uint64_t size) noexcept {
    const uint64_t key = (place >> 4) ^ size << 32 ^ size;
    return static_cast<uint32_t>((key * 0x9E3779B97F4A7C15u) >>
                                 (64 - kIndexBits));
  }

  uint64_t last_literal_;
  uint32_t last_device_;
  uint16_t used_;
  uint16_t epoch_;  // of the open chunk; entries of others are empty ones
  alignas(64) Entry index_[kIndexSize];  // by hash of the block
};

class ThreadLog {
 public:
  // Room for `bytes` more in the open chunk, opening a new one if needed.
  // False: there is no space; drop the record. The records of tensors so far
  // are in the payload afterwards.
  [[nodiscard]] bool EnsureRoom(LogFile& file, size_t bytes, uint64_t now,
                                ChunkUse use = ChunkUse::kHistory) noexcept {
    TakeBatch();
    if (__builtin_expect(
            chunk_ != nullptr && wire::kPayloadBytes - used_ >= bytes, 1)) {
      return true;
    }
    return NextChunk(file, bytes, now, use);
  }

  [[nodiscard]] wire::Encoder encoder() const noexcept {
    uint8_t* const payload = chunk_ + wire::kPayloadOffset;
    return {payload + used_, payload + wire::kPayloadBytes};
  }

  // Makes what `record` wrote part of the file. False (and nothing changes)
  // where it did not fit.
  bool Commit(const wire::Encoder& record) noexcept {
    if (!record.ok()) return false;
    CommitUntil(record.position());
    return true;
  }

  // The records of tensors, 64 at a time: first as they come, which is a line
  // or two, then all of them into the payload, while the code for it is at
  // hand. In the file from the first instant.
  //
  // Whether AddRecent may be called as things are. One test.
  [[nodiscard]] bool HasRecentRoom() const noexcept {
    return reinterpret_cast<uintptr_t>(recent_) % wire::kRecentBytes != 0;
  }
  // Before the first of a batch, after EnsureRoom(kLeastBatchBytes): of as many
  // as the payload has room for, in the last slots.
  static constexpr size_t kLeastBatchBytes = 4 * wire::kMaxTensorBytes;
  void BeginRecent() noexcept {
    const size_t fit = (wire::kPayloadBytes - used_) / wire::kMaxTensorBytes;
    recent_ =
        reinterpret_cast<wire::RecentTensor*>(chunk_ + wire::kChunkBytes) -
        std::min(fit, wire::kRecentTensors);
    first_recent_ = recent_;
    recent_tag_ = used_ + 1;
  }
  // `size` is negative for a free, whose `stack` is not written.
  void AddRecent(uint64_t now, uint64_t address, int64_t size, uint32_t stack,
                 uint32_t device) noexcept {
    latest_ = now;
    // Where the batch will look it up: one at a time, each arrives in time.
    blocks_.Prefetch(address, BytesOf(size), device);
    wire::RecentTensor* const slot = recent_++;
    slot->time = now;
    slot->address = address;
    slot->size = size;
    // release: a reader that sees the tag sees the rest. Its partner is the
    // read of the slots in the analyzer's ChunkParser::ReadRecent().
    std::atomic_ref<uint64_t>(slot->stack_device_tag)
        .store(wire::RecentWord(stack, device, recent_tag_),
               std::memory_order_release);
    EndEvent();
  }
  DSTRACE_PREFETCH void PrefetchRecent() const noexcept {
    runtime::Prefetch(recent_);  // may be null
  }

  // Of the batch at hand each tensor whose record is complete, in order, by
  // `visit(const RecentTensor&)` until it returns false. By the log's thread,
  // or by another one while the log's neither begins nor takes a batch.
  template <typename Visit>
  void ForEachRecent(Visit visit) const noexcept {
    if (first_recent_ == nullptr) return;
    const auto* const end =
        reinterpret_cast<const wire::RecentTensor*>(chunk_ + wire::kChunkBytes);
    for (const wire::RecentTensor* slot = first_recent_; slot != end; ++slot) {
      // acquire: pairs with the release in AddRecent().
      const uint64_t word =
          std::atomic_ref<const uint64_t>(slot->stack_device_tag)
              .load(std::memory_order_acquire);
      if (wire::RecentTag(word) != recent_tag_ || !visit(*slot)) return;
    }
  }
  [[nodiscard]] bool HasBatch() const noexcept { return recent_ != nullptr; }
  // The batch at hand goes into the payload.
  void TakeBatch() noexcept {
    if (recent_ != nullptr) TakeRecent();
  }

  // An event's time is about to be read. Ends with AddRecent() or EndEvent().
  void BeginEvent() noexcept {
    // relaxed, and no fence: who asks IsInEvent() gives the store time.
    std::atomic_ref<uint32_t>(in_event_).store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  // Its time is void.
  void EndEvent() noexcept {
    // release: pairs with the acquire in IsInEvent().
    std::atomic_ref<uint32_t>(in_event_).store(0, std::memory_order_release);
  }
  // False: the events whose time was read some microseconds ago or earlier are
  // among the recent ones.
  [[nodiscard]] bool IsInEvent() const noexcept {
    // acquire: pairs with the releases in AddRecent() and EndEvent().
    return std::atomic_ref<const uint32_t>(in_event_).load(
               std::memory_order_acquire) != 0;
  }

  // Nanoseconds since the time-carrying record before; never negative. Call
  // after EnsureRoom, once per time-carrying record that is committed.
  [[nodiscard]] uint64_t TimeDelta(uint64_t now) noexcept {
    if (now > latest_) latest_ = now;
    if (now <= last_time_) return 0;
    const uint64_t delta = now - last_time_;
    last_time_ = now;
    return delta;
  }

  // Of the last time-carrying record, as a reader will see it.
  [[nodiscard]] uint64_t last_time() const noexcept { return last_time_; }
  // Of the last event, encoded or not: no later one is told as earlier.
  [[nodiscard]] uint64_t latest() const noexcept { return latest_; }
  [[nodiscard]] bool is_empty() const noexcept { return used_ == 0; }

  // The calling thread takes over; its id is written if it is another one.
  void AdoptBy(uint32_t thread) noexcept {
    TakeBatch();  // it is the other's
    thread_ = thread;
  }
  [[nodiscard]] bool NeedsThreadRecord() const noexcept {
    return thread_ != recorded_thread_;
  }
  void NoteThreadRecorded() noexcept { recorded_thread_ = thread_; }
  [[nodiscard]] uint32_t thread() const noexcept { return thread_; }

  void Close(LogFile& file) noexcept;
  // In a child of fork(): the chunk is the parent's and not mapped here.
  void AbandonInChild() noexcept {
    chunk_ = nullptr;
    recent_ = nullptr;
    first_recent_ = nullptr;
  }

 private:
  // Of an allocation, or of a free, whose size is negative.
  static uint64_t BytesOf(int64_t size) noexcept {
    const auto bytes = static_cast<uint64_t>(size);
    return size > 0 ? bytes : -bytes;
  }
  void CommitUntil(const uint8_t* end) noexcept {
    used_ = static_cast<uint32_t>(end - (chunk_ + wire::kPayloadOffset));
    // release: a reader that sees the count sees the bytes before it (its
    // acquire load is in the analyzer's chunk reader).
    std::atomic_ref<uint32_t>(
        *reinterpret_cast<uint32_t*>(chunk_ + wire::kCommittedOffset))
        .store(used_, std::memory_order_release);
  }
  uint8_t* EncodeTensor(uint8_t* at, uint64_t now, uint32_t stack,
                        uint64_t address, int64_t size,
                        uint32_t device) noexcept;
  DSTRACE_HOT void TakeRecent() noexcept;
  DSTRACE_COLD bool NextChunk(LogFile& file, size_t bytes, uint64_t now,
                              ChunkUse use) noexcept;

  // The place of the next record among the recent ones; null: none are open.
  // A multiple of kRecentBytes: all places are taken.
  wire::RecentTensor* recent_;
  const wire::RecentTensor* first_recent_;  // of the batch; null: none
  uint32_t recent_tag_;
  uint32_t used_;  // bytes of the payload that are committed
  uint8_t* chunk_;
  uint32_t thread_;
  uint32_t recorded_thread_;  // whose records the reader thinks these are
  uint64_t last_time_;
  uint64_t latest_;
  uint32_t in_event_;  // 1: its time was read, and it is not among the recent
  BlockDictionary blocks_;
};

// Lives in pages that are zero to begin with and is never destroyed.
static_assert(std::is_trivially_default_constructible_v<ThreadLog>);
static_assert(std::is_trivially_destructible_v<ThreadLog>);

}  // namespace dstrace::log

#endif  // DSTRACE_PRELOAD_LOG_THREAD_LOG_H_
