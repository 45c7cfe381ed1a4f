// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_LOG_LOG_FILE_H_
#define DSTRACE_PRELOAD_LOG_LOG_FILE_H_

// The trace file of one process, handed out a chunk at a time.
//
// Guarantees
//  - The file is a valid serialized TraceFile (proto/trace.proto) at every
//    instant, also after SIGKILL: it grows by whole pages that are each a
//    `reserved` field, and a chunk comes to be by one eight-byte store.
//  - What was committed in a chunk is in the page cache: only a crash of the
//    machine can lose it.
//  - Disk space is taken before it is mapped, so a full disk is an error
//    here and not a SIGBUS later. RLIMIT_FSIZE is honoured the same way.
//  - An existing file is never opened.
// Where the file system refuses a shared mapping, chunks live in memory and are
// written when closed (`crash_proof()` is false): a kill loses open chunks.
//
// With a limit the file stops growing there: places of old chunks are written
// again, after a checkpoint of what they hold and is still live. A chunk turns
// into a `reserved` field of its own length by one store, and into the new
// chunk by another. What cannot be recycled (open and pinned chunks, two
// checkpoints) may exceed the limit; that is said once on stderr.
//
// Thread-safety: OpenChunk, CloseChunk and Trim are thread-safe (one lock,
// taken once per 64 KiB). Open and AbandonInChild need exclusive access.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "preload/log/recycler.h"
#include "preload/runtime/mutex.h"
#include "proto/wire/layout.h"

namespace dstrace::log {

enum class OpenResult { kOk, kExists, kFailed };

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
  // when there is no space (`disk_full()`) or no address space for it.
  // With a limit, opening a kHistory chunk may write a checkpoint first.
  [[nodiscard]] uint8_t* OpenChunk(uint32_t thread, uint64_t now,
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
  [[nodiscard]] bool disk_full() const noexcept {
    // relaxed: a hint for the message; the lock orders the real decision.
    return disk_full_.load(std::memory_order_relaxed);
  }

 private:
  uint8_t* OpenLocked(uint32_t thread, uint64_t now, ChunkUse use) noexcept;
  uint8_t* MapChunk() noexcept;
  uint8_t* MapAt(uint64_t offset) noexcept;
  uint8_t* MapFree(uint32_t* place) noexcept;
  void MakeRoom() noexcept;
  void TakeCheckpoint() noexcept;
  void ForgetOldest() noexcept;
  bool Grow() noexcept;
  // A program that closes every descriptor (daemons do) may have put another
  // file under our number.
  bool FileIsOurs() const noexcept;
  bool WithinFileLimit(uint64_t size) const noexcept;
  bool ReservePages(uint64_t bytes) noexcept;
  bool WriteAt(const uint8_t* from, size_t size, uint64_t offset) noexcept;
  bool AppendWhole(const uint8_t* chunk) noexcept;
  bool WriteOver(const uint8_t* chunk, uint64_t offset) noexcept;
  bool WriteClosed(const uint8_t* chunk, uint32_t* place) noexcept;

  // Held while room is made, and taken before mutex_.
  runtime::Mutex checkpoint_mutex_;
  Checkpointer checkpointer_;
  bool said_over_limit_ = false;

  runtime::Mutex mutex_;  // all below
  Recycler recycler_;
  int fd_ = -1;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  bool use_mmap_ = true;
  std::atomic<bool> disk_full_{false};
  uint32_t next_sequence_ = 0;
  uint64_t next_chunk_ = 0;  // file offset of the next chunk
  uint64_t file_size_ = 0;   // bytes that are chunks or reserved pages
};

}  // namespace dstrace::log

#endif  // DSTRACE_PRELOAD_LOG_LOG_FILE_H_
