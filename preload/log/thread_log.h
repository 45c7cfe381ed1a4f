// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_LOG_THREAD_LOG_H_
#define DSTRACE_PRELOAD_LOG_THREAD_LOG_H_

// One thread's place in the log: its open chunk, the time of its last record
// and the dictionary of blocks named in the chunk.
//
//   uint8_t* chunk  ->  | header | record record record |      free      |
//                                                       ^ used_
//
// Usage: EnsureRoom(n), then write at most n bytes through encoder(), then
// Commit(). Nothing of a record is visible to a reader before Commit().
//
// Thread-safety: one thread at a time; a ThreadLog may be handed from an exited
// thread to a new one (AdoptBy), which is why short-lived threads do not cost a
// chunk each. Lives in zeroed pages (see capture/thread_state.h).

#include <cstdint>
#include <type_traits>

#include "preload/log/log_file.h"
#include "preload/runtime/hot.h"
#include "proto/wire/encoder.h"
#include "proto/wire/layout.h"
#include "proto/wire/records.h"

namespace dstrace::log {

// The blocks a chunk has named in full, so that the next mention is one or two
// bytes. Mirrored by the reader: slots are given in order of literal mention.
class BlockDictionary {
 public:
  static constexpr uint32_t kSlots = 4096;

  void Clear() noexcept;
  // A slot reference if this very block is known, else a literal, which becomes
  // known from here on.
  [[nodiscard]] DSTRACE_HOT wire::BlockRef Refer(uint64_t address,
                                                 uint64_t size,
                                                 uint32_t device) noexcept;

 private:
  struct Slot {
    uint64_t address;
    uint64_t size;
    uint32_t device;
  };
  static constexpr uint32_t kIndexBits = 13;
  static constexpr uint32_t kIndexSize = 1u << kIndexBits;

  wire::BlockRef Literal(uint64_t address, uint64_t size,
                         uint32_t device) noexcept;

  uint64_t last_literal_;
  uint32_t last_device_;
  uint32_t used_;
  uint16_t index_[kIndexSize];  // slot + 1 by hash of the block; 0 is empty
  Slot slots_[kSlots];
};

class ThreadLog {
 public:
  // Room for `bytes` more in the open chunk, opening a new one if needed.
  // False: there is no space; drop the record.
  [[nodiscard]] bool EnsureRoom(LogFile& file, size_t bytes, uint64_t now,
                                ChunkUse use = ChunkUse::kHistory) noexcept {
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
  DSTRACE_HOT bool Commit(const wire::Encoder& record) noexcept;

  // Nanoseconds since the time-carrying record before; never negative. Call
  // after EnsureRoom, once per time-carrying record that is committed.
  [[nodiscard]] uint64_t TimeDelta(uint64_t now) noexcept {
    if (now <= last_time_) return 0;
    const uint64_t delta = now - last_time_;
    last_time_ = now;
    return delta;
  }

  // Of the last time-carrying record, as a reader will see it.
  [[nodiscard]] uint64_t last_time() const noexcept { return last_time_; }
  [[nodiscard]] bool is_empty() const noexcept { return used_ == 0; }

  [[nodiscard]] BlockDictionary& blocks() noexcept { return blocks_; }

  // The calling thread takes over; its id is written if it is another one.
  void AdoptBy(uint32_t thread) noexcept { thread_ = thread; }
  [[nodiscard]] bool NeedsThreadRecord() const noexcept {
    return thread_ != recorded_thread_;
  }
  void NoteThreadRecorded() noexcept { recorded_thread_ = thread_; }
  [[nodiscard]] uint32_t thread() const noexcept { return thread_; }

  void Close(LogFile& file) noexcept;
  // In a child of fork(): the chunk is the parent's and not mapped here.
  void AbandonInChild() noexcept { chunk_ = nullptr; }

 private:
  DSTRACE_COLD bool NextChunk(LogFile& file, size_t bytes, uint64_t now,
                              ChunkUse use) noexcept;

  uint8_t* chunk_;
  uint32_t used_;  // bytes of the payload that are committed
  uint32_t thread_;
  uint32_t recorded_thread_;  // whose records the reader thinks these are
  uint64_t last_time_;
  BlockDictionary blocks_;
};

// Lives in pages that are zero to begin with and is never destroyed.
static_assert(std::is_trivially_default_constructible_v<ThreadLog>);
static_assert(std::is_trivially_destructible_v<ThreadLog>);

}  // namespace dstrace::log

#endif  // DSTRACE_PRELOAD_LOG_THREAD_LOG_H_
