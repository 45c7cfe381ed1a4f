// SPDX-License-Identifier: Apache-2.0
#include "preload/log/log_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "preload/runtime/diagnostics.h"
#include "preload/runtime/memory.h"

namespace dstrace::log {
namespace {

using wire::kChunkBytes;

// Growth doubles with the file between these bounds, so that a short run leaves
// a small file. Larger steps would save nothing: all threads wait for the one
// that writes them, and the pages have left the processor's cache when they are
// filled (docs/design/0009-one-mapping-a-thread.md).
constexpr uint64_t kMinGrowth = kChunkBytes;
constexpr uint64_t kMaxGrowth = 256 << 10;
// The disk is asked for more at once: on a network file system that is a
// message.
constexpr uint64_t kMaxAhead = 1 << 20;

void SetLastTime(uint8_t* chunk, uint64_t time) noexcept {
  // release: who reads the last time sees every record of the chunk.
  std::atomic_ref<uint64_t>(
      *reinterpret_cast<uint64_t*>(chunk + wire::kLastTimeOffset))
      .store(time, std::memory_order_release);
}

std::atomic_ref<uint64_t> FirstWord(uint8_t* chunk) noexcept {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(chunk));
}

}  // namespace

OpenResult LogFile::Open(const char* path, Options options) noexcept {
  const OpenResult result = file_.Open(path);
  if (result != OpenResult::kOk) return result;
  use_mmap_ = options.use_mmap;
  // relaxed: nobody else sees this object yet.
  refusal_.store(0, std::memory_order_relaxed);
  ask_again_.store(0, std::memory_order_relaxed);
  next_sequence_ = 0;
  next_chunk_ = 0;
  checkpointer_ = options.checkpointer;
  said_over_limit_ = false;
  no_checkpoint_before_ = 0;
  const uint64_t limit =
      options.limit_bytes == 0
          ? 0
          : std::max<uint64_t>(options.limit_bytes / kChunkBytes, 1);
  return recycler_.Start(limit) ? OpenResult::kOk : OpenResult::kFailed;
}

bool LogFile::IsStillOurs() noexcept {
  if (file_.IsOurs()) return true;
  // relaxed: see refusal().
  refusal_.store(EBADF, std::memory_order_relaxed);
  return false;
}

void LogFile::NoteRefusal() noexcept {
  // relaxed: see refusal().
  refusal_.store(file_.refusal(), std::memory_order_relaxed);
}

bool LogFile::Grow() noexcept {
  const uint64_t size = file_.size();
  const uint64_t ahead = std::min(
      std::clamp(size / kChunkBytes * kChunkBytes, kMinGrowth, kMaxAhead),
      recycler_.GrowthLeft(size));
  uint64_t growth = std::min(ahead, kMaxGrowth);
  // A nearly full disk may still have room for less.
  for (; growth >= kMinGrowth;
       growth = growth / 2 / kChunkBytes * kChunkBytes) {
    if (file_.Reserve(growth, ahead)) return true;
    if (next_chunk_ + kChunkBytes <= file_.size()) return true;
  }
  return false;
}

// A place that is written again, or a new one; kNone: the disk is full.
uint32_t LogFile::TakePlace() noexcept {
  const uint32_t place = recycler_.TakeFree();
  if (place != Recycler::kNone) return place;
  if (next_chunk_ + kChunkBytes > file_.size() && !Grow()) {
    NoteRefusal();
    return Recycler::kNone;
  }
  next_chunk_ += kChunkBytes;
  return static_cast<uint32_t>(next_chunk_ / kChunkBytes - 1);
}

void LogFile::ReturnPlace(uint32_t place) noexcept {
  if (uint64_t{place} * kChunkBytes + kChunkBytes == next_chunk_) {
    next_chunk_ -= kChunkBytes;
  } else {
    recycler_.PutBack(place);
  }
}

uint8_t* LogFile::MapPlace(uint32_t place) noexcept {
  uint8_t* const chunk = file_.Map(uint64_t{place} * kChunkBytes, kChunkBytes);
  if (chunk != nullptr) return chunk;
  ReturnPlace(place);
  // Refused to the first: to all.
  if (next_chunk_ == 0) use_mmap_ = false;
  return nullptr;
}

void LogFile::BeginCheckpoint() noexcept {
  const runtime::MutexLock lock(mutex_);
  recycler_.BeginCheckpoint();
}

// With the room lock held.
void LogFile::TakeCheckpoint(uint64_t now) noexcept {
  constexpr uint64_t kPause = 1'000'000'000;  // ns; all threads wait for one
  if (now < no_checkpoint_before_) return;
  uint64_t time = 0;
  if (!checkpointer_.write(checkpointer_.context, &time)) {
    no_checkpoint_before_ = now + kPause;
    return;
  }
  const runtime::MutexLock lock(mutex_);
  recycler_.CommitCheckpoint(time);
}

// Published before any byte of what it gives up is written again.
void LogFile::ForgetOldest() noexcept {
  const runtime::MutexLock lock(mutex_);
  checkpointer_.publish(checkpointer_.context, recycler_.OldestCheckpoint());
  recycler_.ForgetBeforeOldest();
}

// Only the thread that makes room changes what these questions are about, or
// another one makes it worse by a chunk; so each is asked anew.
void LogFile::MakeRoom(uint64_t now) noexcept {
  const uint32_t size = checkpointer_.size(checkpointer_.context);
  const auto ask = [this](auto question) {
    const runtime::MutexLock lock(mutex_);
    return question(recycler_);
  };
  const auto is_due = [size](const Recycler& r) {
    return r.CheckpointDue(size);
  };
  const auto is_short = [size](const Recycler& r) { return r.IsShort(size); };
  const auto has_one = [](const Recycler& r) { return r.HasCheckpoint(); };
  if (!ask([&](const Recycler& r) { return is_due(r) || is_short(r); })) return;
  const runtime::MutexLock one_at_a_time(checkpoint_mutex_);
  if (ask(is_due)) {
    if (ask([](const Recycler& r) { return r.IsCrowded(); })) ForgetOldest();
    TakeCheckpoint(now);
  }
  if (ask(is_short) && !ask(has_one)) TakeCheckpoint(now);
  while (ask(is_short) && ask(has_one)) ForgetOldest();
  if (!said_over_limit_ &&
      ask([size](const Recycler& r) { return r.IsOverLimit(size); })) {
    said_over_limit_ = true;
    runtime::Say(
        "DSTRACE_LOG_LIMIT is too small for what is live, open and defined; "
        "the trace grows beyond it");
  }
}

// `take` under the lock; once more where the disk is full before the limit is
// reached, which then is the limit.
template <typename Take>
auto LogFile::WithRoom(ChunkUse use, uint64_t now, Take take) noexcept {
  constexpr uint64_t kPause = 100'000'000;  // ns
  using Taken = decltype(take());
  // relaxed: who sees an old value asks once more.
  if (__builtin_expect(now < ask_again_.load(std::memory_order_relaxed), 0) &&
      use == ChunkUse::kHistory) {
    return Taken{};
  }
  // The limit is set once, before any thread opens a chunk.
  const bool has_limit = recycler_.on();
  for (int attempt = has_limit ? 0 : 1;; ++attempt) {
    if (has_limit && use == ChunkUse::kHistory) MakeRoom(now);
    const runtime::MutexLock lock(mutex_);
    const Taken taken = take();
    if (taken) {
      // relaxed: see refusal().
      refusal_.store(0, std::memory_order_relaxed);
      return taken;
    }
    if (attempt > 0 || refusal() == 0) {
      // With a checkpoint the next one to ask may make room. relaxed: as above.
      if (!recycler_.HasCheckpoint()) {
        ask_again_.store(now + kPause, std::memory_order_relaxed);
      }
      return taken;
    }
    recycler_.StopGrowing();
  }
}

uint8_t* LogFile::OpenChunk(uint32_t thread, uint64_t now,
                            ChunkUse use) noexcept {
  return WithRoom(use, now, [&] { return OpenLocked(thread, now, use); });
}

bool LogFile::TurnChunk(uint8_t* chunk, uint64_t last_time, uint32_t thread,
                        uint64_t now, ChunkUse use) noexcept {
  return WithRoom(
      use, now, [&] { return TurnLocked(chunk, last_time, thread, now, use); });
}

uint8_t* LogFile::OpenLocked(uint32_t thread, uint64_t now,
                             ChunkUse use) noexcept {
  if (!IsStillOurs()) return nullptr;
  uint8_t* chunk = nullptr;
  uint32_t place = Recycler::kNone;
  if (use_mmap_) {
    place = TakePlace();
    if (place != Recycler::kNone) chunk = MapPlace(place);
  }
  if (!use_mmap_) {
    chunk = TakeMemory();  // has a place when it is closed
  }
  if (chunk == nullptr) return nullptr;
  recycler_.OnOpened({.chunk = chunk, .place = place, .use = use});
  Begin(chunk, thread, now);
  return chunk;
}

uint8_t* LogFile::TakeMemory() noexcept {
  // The pages reserved for a mapping that was then refused.
  if (next_chunk_ == 0 && file_.size() != 0) file_.CutTo(0);
  return static_cast<uint8_t*>(runtime::MapPages(kChunkBytes));
}

// Who reads the growing file sees the old chunk, reserved space or the new one.
void LogFile::Begin(uint8_t* chunk, uint32_t thread, uint64_t now) noexcept {
  // acq_rel: the acquire half keeps the new header's bytes behind this store,
  // so that a reader who sees them sees that the old chunk is gone. Its partner
  // are the reads in the analyzer's ChunkBeginsAt().
  FirstWord(chunk).exchange(wire::ReservedChunkWord(),
                            std::memory_order_acq_rel);
  wire::PutChunkHeader(chunk, thread, next_sequence_++, now);
  // release: a reader that sees the chunk sees its header.
  FirstWord(chunk).store(wire::ChunkOpeningWord(), std::memory_order_release);
}

// From before the copy is complete until the chunk begins anew both are there:
// a reader takes chunks of one sequence number for one.
bool LogFile::TurnLocked(uint8_t* chunk, uint64_t last_time, uint32_t thread,
                         uint64_t now, ChunkUse use) noexcept {
  if (!IsStillOurs()) return false;
  uint32_t place = use_mmap_ ? TakePlace() : recycler_.TakeFree();
  if (use_mmap_ && place == Recycler::kNone) return false;
  if (!(use_mmap_ ? WriteOver(chunk, place, last_time)
                  : WriteClosed(chunk, &place, last_time))) {
    if (use_mmap_) {
      ReturnPlace(place);
    } else if (place != Recycler::kNone) {
      recycler_.PutBack(place);
    }
    return false;
  }
  recycler_.OnCopied(place, use);
  Begin(chunk, thread, now);
  return true;
}

// As in a mapping: reserved space, the new chunk behind its first word, that
// word. The header goes with it, as it is at the end.
bool LogFile::WriteOver(const uint8_t* chunk, uint32_t place,
                        uint64_t last_time) noexcept {
  const uint64_t at = uint64_t{place} * kChunkBytes;
  uint8_t header[wire::kPayloadOffset];
  std::memcpy(header, chunk, sizeof header);
  std::memcpy(header + wire::kLastTimeOffset, &last_time, sizeof last_time);
  const bool written =
      file_.WriteBehind(wire::ReservedChunkWord(), chunk, kChunkBytes, at) &&
      file_.WriteAt(header, sizeof header, at);
  if (!written) NoteRefusal();
  return written;
}

// Of a chunk that is in memory only.
bool LogFile::WriteClosed(uint8_t* chunk, uint32_t* place,
                          uint64_t last_time) noexcept {
  if (*place != Recycler::kNone) return WriteOver(chunk, *place, last_time);
  SetLastTime(chunk, last_time);
  *place = static_cast<uint32_t>(file_.size() / kChunkBytes);
  if (file_.Append(chunk, kChunkBytes)) {
    next_chunk_ = file_.size();
    return true;
  }
  SetLastTime(chunk, 0);  // it is still open
  *place = Recycler::kNone;
  NoteRefusal();
  return false;
}

void LogFile::CloseChunk(uint8_t* chunk, uint64_t last_time) noexcept {
  if (use_mmap_) SetLastTime(chunk, last_time);
  if (!use_mmap_ || recycler_.on()) {
    const runtime::MutexLock lock(mutex_);
    Recycler::Open open = recycler_.OnClosed(chunk);
    if (!use_mmap_) open.place = recycler_.TakeFree();
    if (use_mmap_ ||
        (file_.IsOurs() && WriteClosed(chunk, &open.place, last_time))) {
      recycler_.OnPlaced(open);
    }
  }
  if (use_mmap_) {
    munmap(chunk, kChunkBytes);
  } else {
    runtime::UnmapPages(chunk, kChunkBytes);
  }
}

void LogFile::Trim() noexcept {
  const runtime::MutexLock lock(mutex_);
  if (!file_.IsOurs() || !use_mmap_ || !file_.HasMoreThan(next_chunk_)) return;
  file_.CutTo(next_chunk_);
}

void LogFile::AbandonInChild() noexcept {
  mutex_.ResetAfterFork();
  checkpoint_mutex_.ResetAfterFork();
  file_.AbandonInChild();
}

}  // namespace dstrace::log
