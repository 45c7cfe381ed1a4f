// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_LOG_LOG_FILE_H_
#define DSTRACE_PRELOAD_LOG_LOG_FILE_H_

// The trace file of one process, handed out a chunk at a time.
//
//   chunk of thread A     place in the file     place in the file
//   +----------------+ -> +----------------+    +----------------+
//   | mapped, open   |    | closed         |    | closed         |   ...
//   +----------------+    +----------------+    +----------------+
//      written again           TurnChunk() wrote these
//
// Guarantees
//  - The file is a valid serialized TraceFile (proto/trace.proto) at every
//    instant, also after SIGKILL: it grows as paged_file.h says, and a chunk
//    comes to be by one eight-byte store, or by the write of its header.
//  - What was committed in a chunk is in the page cache: only a crash of the
//    machine can lose it.
// Where the file system refuses a shared mapping, chunks live in memory and are
// written when closed (`crash_proof()` is false): a kill loses open chunks, and
// in the middle of such a write leaves the last field cut off.
//
// A thread keeps its mapping, and leaves it to the next thread: the first store
// into a page of a new one is a fault that makes the file system note the page
// as changed, tens of microseconds each
// (docs/design/0009-one-mapping-a-thread.md).
//
// With a limit the file stops growing there: places of old chunks are written
// again, after a checkpoint of what they hold and is still live. A chunk turns
// into a `reserved` field of its own length by one store, and into the new
// chunk by another. What cannot be recycled (open and pinned chunks, two
// checkpoints) may exceed the limit; that is said once on stderr.
//
// Thread-safety: OpenChunk, TurnChunk, CloseChunk and Trim are thread-safe (one
// lock, taken once per 64 KiB). Open and AbandonInChild need exclusive access.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "preload/log/paged_file.h"
#include "preload/log/recycler.h"
#include "preload/runtime/mutex.h"
#include "proto/wire/layout.h"

namespace dstrace::log {

// Who knows what is live; called by LogFile without its lock, one call at a
// time.
struct Checkpointer {
  void* context = nullptr;
  // About how many chunks a checkpoint would take now.
  uint32_t (*size)(void* context) noexcept = nullptr;
  // Calls BeginCheckpoint() at the instant `*time`, then writes what was live
  // at it into chunks of its own. False: incomplete.
  bool (*write)(void* context, uint64_t* time) noexcept = nullptr;
  // From `time` on the history is complete. Must be in the file on return.
  void (*publish)(void* context, uint64_t time) noexcept = nullptr;
};

class LogFile {
 public:
  struct Options {
    bool use_mmap = true;  // false: as on a file system without shared mappings
    uint64_t limit_bytes = 0;        // 0: none
    Checkpointer checkpointer = {};  // with a limit
  };

  constexpr LogFile() noexcept = default;
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // On kFailed errno says why.
  [[nodiscard]] OpenResult Open(const char* path, Options options) noexcept;

  // A chunk whose header is in place and whose committed count is 0, or nullptr
  // when there is no space (`refusal()`) or no address space for it. History
  // that was refused is asked for again 100 ms later (of `now`), not before:
  // what comes meanwhile costs the program no call of the kernel. Unless there
  // is a checkpoint, so that the next one may make room.
  // With a limit, opening a kHistory chunk may write a checkpoint first; one
  // that failed is not tried again for a second.
  [[nodiscard]] uint8_t* OpenChunk(uint32_t thread, uint64_t now,
                                   ChunkUse use = ChunkUse::kHistory) noexcept;

  // What `chunk` holds becomes a chunk of its own, closed at `last_time`, and
  // `chunk` the next one, as OpenChunk() gives them. False, and nothing
  // changes: there is no space.
  [[nodiscard]] bool TurnChunk(uint8_t* chunk, uint64_t last_time,
                               uint32_t thread, uint64_t now,
                               ChunkUse use = ChunkUse::kHistory) noexcept;

  // What is closed from here on is not older than the checkpoint.
  void BeginCheckpoint() noexcept;

  // Ends a chunk; its memory is gone afterwards.
  void CloseChunk(uint8_t* chunk, uint64_t last_time) noexcept;

  // Cuts reserved pages off the end of the file.
  void Trim() noexcept;

  // In a child of fork(): forgets the parent's file without touching it.
  void AbandonInChild() noexcept;

  [[nodiscard]] bool crash_proof() const noexcept { return use_mmap_; }
  // Why there is no space: an errno, EFBIG where a limit of the process on the
  // size of files is reached, EBADF where the program closed the file. 0: there
  // is.
  [[nodiscard]] int refusal() const noexcept {
    // relaxed: a hint for the message; the lock orders the real decision.
    return refusal_.load(std::memory_order_relaxed);
  }

 private:
  template <typename Take>
  auto WithRoom(ChunkUse use, uint64_t now, Take take) noexcept;
  bool IsStillOurs() noexcept;
  void NoteRefusal() noexcept;
  uint8_t* OpenLocked(uint32_t thread, uint64_t now, ChunkUse use) noexcept;
  bool TurnLocked(uint8_t* chunk, uint64_t last_time, uint32_t thread,
                  uint64_t now, ChunkUse use) noexcept;
  void Begin(uint8_t* chunk, uint32_t thread, uint64_t now) noexcept;
  uint32_t TakePlace() noexcept;
  void ReturnPlace(uint32_t place) noexcept;
  uint8_t* MapPlace(uint32_t place) noexcept;
  uint8_t* TakeMemory() noexcept;
  void MakeRoom(uint64_t now) noexcept;
  void TakeCheckpoint(uint64_t now) noexcept;
  void ForgetOldest() noexcept;
  bool Grow() noexcept;
  bool WriteOver(const uint8_t* chunk, uint32_t place,
                 uint64_t last_time) noexcept;
  bool WriteClosed(uint8_t* chunk, uint32_t* place,
                   uint64_t last_time) noexcept;

  // Held while room is made, and taken before mutex_.
  runtime::Mutex checkpoint_mutex_;
  Checkpointer checkpointer_;
  bool said_over_limit_ = false;
  uint64_t no_checkpoint_before_ = 0;  // ns, after one that failed

  runtime::Mutex mutex_;  // all below
  Recycler recycler_;
  PagedFile file_;
  bool use_mmap_ = true;
  std::atomic<int> refusal_{0};
  std::atomic<uint64_t> ask_again_{0};  // ns, after a refusal
  uint32_t next_sequence_ = 0;
  uint64_t next_chunk_ = 0;  // file offset of the next chunk
};

}  // namespace dstrace::log

#endif  // DSTRACE_PRELOAD_LOG_LOG_FILE_H_
