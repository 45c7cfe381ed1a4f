// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_LOG_RECYCLER_H_
#define DSTRACE_PRELOAD_LOG_RECYCLER_H_

// Which places of a bounded file may be written again.
//
//   closed in epoch   0  0  0 |1  1  1  1 |2  2  2     (oldest to newest)
//                             ^checkpoint 1  ^checkpoint 2
//
// A checkpoint holds all that was live when it began, so once the history may
// start there, whatever was closed before it is free. Docs:
// docs/design/0005-bounded-logs.md. Pure bookkeeping: no file, no clock.
//
// Thread-safety: none; LogFile holds its lock.

#include <cstddef>
#include <cstdint>

namespace dstrace::log {

enum class ChunkUse : uint8_t {
  kHistory,     // events; recycled
  kCheckpoint,  // what was live; recycled with the history before the next one
  kPinned,      // definitions and facts of the process; never recycled
};

class Recycler {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  // Smaller limits are taken for this one.
  static constexpr uint32_t kMinChunks = 64;  // 4 MiB

  constexpr Recycler() noexcept = default;
  Recycler(const Recycler&) = delete;
  Recycler& operator=(const Recycler&) = delete;

  // `limit` chunks, 0: no limit. False: no memory for the bookkeeping.
  [[nodiscard]] bool Start(uint64_t limit_chunks) noexcept;
  [[nodiscard]] bool on() const noexcept { return limit_ != 0; }

  // A place that may be written again, or kNone: take a new one.
  [[nodiscard]] uint32_t TakeFree() noexcept;
  void PutBack(uint32_t place) noexcept;
  struct Open {
    const void* chunk = nullptr;
    uint32_t place = kNone;  // kNone: not in the file before it is closed
    ChunkUse use = ChunkUse::kHistory;
  };
  void OnOpened(const Open& open) noexcept;
  [[nodiscard]] Open OnClosed(const void* chunk) noexcept;
  // What was closed is in the file at `open.place`.
  void OnPlaced(const Open& open) noexcept;
  // What an open chunk held was copied to `place` and the chunk begun anew.
  void OnCopied(uint32_t place, ChunkUse use) noexcept;

  // At most this many bytes more, at least one chunk: the caller asks when
  // there is no other way.
  [[nodiscard]] uint64_t GrowthLeft(uint64_t file_bytes) const noexcept;

  // The disk holds no more than what is in the file now.
  void StopGrowing() noexcept { grows_ = false; }

  // `size`: chunks that a checkpoint now would take.
  [[nodiscard]] bool CheckpointDue(uint32_t size) const noexcept;
  // Fewer places left than a checkpoint needs.
  [[nodiscard]] bool IsShort(uint32_t size) const noexcept;
  [[nodiscard]] bool HasCheckpoint() const noexcept { return pending_ != 0; }
  // The oldest pending checkpoint has to go before another can be kept.
  [[nodiscard]] bool IsCrowded() const noexcept {
    return pending_ == kMaxPending;
  }
  // More than the limit is needed for what cannot be recycled.
  [[nodiscard]] bool IsOverLimit(uint32_t size) const noexcept {
    return Capacity(size) > limit_;
  }

  // Chunks closed from here on are not older than the checkpoint.
  void BeginCheckpoint() noexcept {
    ++epoch_;
    opened_ = 0;
  }
  // The checkpoint begun last is complete; `time` is when it began.
  void CommitCheckpoint(uint64_t time) noexcept;
  // When the oldest complete checkpoint began.
  [[nodiscard]] uint64_t OldestCheckpoint() const noexcept {
    return checkpoints_[0].time;
  }
  // History starts at the oldest checkpoint: what was closed before is free.
  void ForgetBeforeOldest() noexcept;

 private:
  struct Checkpoint {
    uint32_t epoch;
    uint64_t time;
  };
  static constexpr uint32_t kMaxPending = 8;
  // Room for 64 GiB of places and as many open chunks as a process may have
  // threads; touched as they are used.
  static constexpr uint32_t kMaxPlaces = 1u << 20;
  static constexpr uint32_t kMaxOpen = 1u << 16;
  // Chunks of history kept whatever the limit.
  static constexpr uint32_t kMinHistory = 16;
  // States of a place beside "epoch it was closed in".
  static constexpr uint32_t kInUse = UINT32_MAX;
  static constexpr uint32_t kFreeState = UINT32_MAX - 1;

  [[nodiscard]] uint32_t Capacity(uint32_t size) const noexcept;
  [[nodiscard]] uint32_t Left(uint32_t size) const noexcept;

  uint32_t limit_ = 0;
  bool grows_ = true;
  uint32_t epoch_ = 0;
  uint32_t places_ = 0;  // in the file
  uint32_t pinned_ = 0;
  uint32_t open_count_ = 0;  // pinned ones too
  uint32_t free_count_ = 0;
  uint32_t opened_ = 0;  // since the last checkpoint
  uint32_t pending_ = 0;
  Checkpoint checkpoints_[kMaxPending] = {};
  uint32_t* state_ = nullptr;  // by place
  uint32_t* free_ = nullptr;   // a stack
  Open* open_ = nullptr;
};

}  // namespace dstrace::log

#endif  // DSTRACE_PRELOAD_LOG_RECYCLER_H_
