// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_LOG_PAGED_FILE_H_
#define DSTRACE_PRELOAD_LOG_PAGED_FILE_H_

// The trace file below its chunks: it grows by whole pages that are each a
// `reserved` field, so that it is a valid TraceFile (proto/trace.proto) however
// far it got.
//
// Guarantees
//  - Disk space is taken before it is mapped, so a full disk is an error here
//    and not a SIGBUS later. RLIMIT_FSIZE is honoured the same way.
//  - An existing file is never opened.
//
// Thread-safety: none, LogFile holds its lock. Offsets and sizes are bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dstrace::log {

enum class OpenResult { kOk, kExists, kFailed };

class PagedFile {
 public:
  constexpr PagedFile() noexcept = default;
  PagedFile(const PagedFile&) = delete;
  PagedFile& operator=(const PagedFile&) = delete;

  // On kFailed errno says why.
  [[nodiscard]] OpenResult Open(const char* path) noexcept;
  // A program that closes every descriptor (daemons do) may have put another
  // file under our number.
  [[nodiscard]] bool IsOurs() const noexcept;

  // What is in use or reserved.
  [[nodiscard]] uint64_t size() const noexcept { return size_; }
  // Reserved pages at the end. False: there is no space for all of them; those
  // there is space for are there. Where the disk has to be asked, it is asked
  // for space for `ahead` bytes if it has that.
  [[nodiscard]] bool Reserve(uint64_t bytes, uint64_t ahead) noexcept;
  // Why the last of Reserve() and the writes that failed did: an errno; EFBIG
  // at a limit of the process on the size of files.
  [[nodiscard]] int refusal() const noexcept { return refusal_; }
  // Whole, or not at all.
  [[nodiscard]] bool Append(const uint8_t* from, size_t bytes) noexcept;
  [[nodiscard]] bool WriteAt(const uint8_t* from, size_t bytes,
                             uint64_t offset) noexcept;
  // As WriteAt(), with `first` in place of the first eight bytes of `from`, and
  // written before all others: in the page cache, also for who is killed.
  [[nodiscard]] bool WriteBehind(uint64_t first, const uint8_t* from,
                                 size_t bytes, uint64_t offset) noexcept;
  // Shared with the file, and not with a child of fork(). Null: refused.
  [[nodiscard]] uint8_t* Map(uint64_t offset, size_t bytes) noexcept;
  // Cuts off what is behind, and gives back its space.
  bool CutTo(uint64_t size) noexcept;
  [[nodiscard]] bool HasMoreThan(uint64_t size) const noexcept {
    return std::max(size_, space_) > size;
  }

  // In a child of fork(): forgets the parent's file without touching it.
  void AbandonInChild() noexcept;

 private:
  [[nodiscard]] bool IsWithinLimit(uint64_t size) const noexcept;
  bool Refuse(int error) noexcept;
  [[nodiscard]] bool TakeSpace(uint64_t bytes, uint64_t ahead) noexcept;

  int fd_ = -1;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
  uint64_t size_ = 0;
  uint64_t space_ = 0;  // the disk was asked for up to here
  int refusal_ = 0;
};

}  // namespace dstrace::log

#endif  // DSTRACE_PRELOAD_LOG_PAGED_FILE_H_
