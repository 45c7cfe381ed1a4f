// SPDX-License-Identifier: Apache-2.0
#include "preload/log/log_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "preload/runtime/memory.h"

namespace dstrace::log {
namespace {

using wire::kChunkBytes;
using wire::kPageBytes;

// Growth doubles with the file between these bounds, so that a short run leaves
// a small file and a long one asks the file system rarely.
constexpr uint64_t kMinGrowth = kChunkBytes;
constexpr uint64_t kMaxGrowth = 4 << 20;
constexpr size_t kPagesPerWrite = 256;

// One page that is a `reserved` field; the same page is written many times.
struct alignas(kPageBytes) ReservedPage {
  uint8_t bytes[kPageBytes];
  constexpr ReservedPage() : bytes{} { wire::PutReservedPage(bytes); }
};
constinit const ReservedPage kReservedPage;

// Files of ours stay clear of the numbers programs expect to get themselves:
// daemons close 0..N, and shells redirect 3..9.
int MoveHigh(int fd) noexcept {
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, 256);
  if (high < 0) return fd;
  close(fd);
  return high;
}

// struct stat of the kernel; glibc's fstat() raised the version this library
// needs.
bool Identify(int fd, uint64_t* device, uint64_t* inode) noexcept {
  struct stat info;
  if (syscall(SYS_fstat, fd, &info) != 0) return false;
  *device = info.st_dev;
  *inode = info.st_ino;
  return true;
}

}  // namespace

OpenResult LogFile::Open(const char* path, Options options) noexcept {
  const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0)
    return errno == EEXIST ? OpenResult::kExists : OpenResult::kFailed;
  fd_ = MoveHigh(fd);
  if (!Identify(fd_, &device_, &inode_)) return OpenResult::kFailed;
  use_mmap_ = options.use_mmap;
  // relaxed: nobody else sees this object yet.
  disk_full_.store(false, std::memory_order_relaxed);
  next_sequence_ = 0;
  next_chunk_ = 0;
  file_size_ = 0;
  return OpenResult::kOk;
}

bool LogFile::FileIsOurs() const noexcept {
  uint64_t device = 0;
  uint64_t inode = 0;
  return fd_ >= 0 && Identify(fd_, &device, &inode) && device == device_ &&
         inode == inode_;
}

bool LogFile::WithinFileLimit(uint64_t size) const noexcept {
  rlimit limit;
  // Beyond the limit a write raises SIGXFSZ, which would end the program.
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
         limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur;
}

bool LogFile::ReservePages(uint64_t bytes) noexcept {
  // Real space first where the file system knows how; the writes below are what
  // makes the pages part of the file.
  if (fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(file_size_),
                static_cast<off_t>(bytes)) != 0 &&
      (errno == ENOSPC || errno == EDQUOT)) {
    return false;
  }
  iovec pages[kPagesPerWrite];
  for (iovec& page : pages) {
    page = {const_cast<uint8_t*>(kReservedPage.bytes), kPageBytes};
  }
  const uint64_t end = file_size_ + bytes;
  while (file_size_ < end) {
    const uint64_t count =
        std::min<uint64_t>((end - file_size_) / kPageBytes, kPagesPerWrite);
    const ssize_t written = pwritev(fd_, pages, static_cast<int>(count),
                                    static_cast<off_t>(file_size_));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0 || written % static_cast<ssize_t>(kPageBytes) != 0) {
      // Back to the last whole page: a cut page is not a valid field.
      [[maybe_unused]] const int cut =
          ftruncate(fd_, static_cast<off_t>(file_size_));
      return false;
    }
    file_size_ += static_cast<uint64_t>(written);
  }
  return true;
}

bool LogFile::Grow() noexcept {
  uint64_t growth = std::clamp(file_size_ / kChunkBytes * kChunkBytes,
                               kMinGrowth, kMaxGrowth);
  // A nearly full disk may still have room for less.
  for (; growth >= kMinGrowth;
       growth = growth / 2 / kChunkBytes * kChunkBytes) {
    if (WithinFileLimit(file_size_ + growth) && ReservePages(growth)) {
      return true;
    }
    if (next_chunk_ + kChunkBytes <= file_size_) return true;
  }
  return false;
}

uint8_t* LogFile::MapChunk() noexcept {
  if (next_chunk_ + kChunkBytes > file_size_ && !Grow()) {
    // relaxed: see disk_full().
    disk_full_.store(true, std::memory_order_relaxed);
    return nullptr;
  }
  // MAP_POPULATE: one call now instead of sixteen page faults inside hooks.
  void* chunk =
      mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_POPULATE, fd_, static_cast<off_t>(next_chunk_));
  if (chunk == MAP_FAILED) {
    if (next_chunk_ == 0) use_mmap_ = false;
    return nullptr;
  }
  // A child of fork() has no business in its parent's log.
  madvise(chunk, kChunkBytes, MADV_DONTFORK);
  next_chunk_ += kChunkBytes;
  return static_cast<uint8_t*>(chunk);
}

uint8_t* LogFile::OpenChunk(uint32_t thread, uint64_t now) noexcept {
  const runtime::MutexLock lock(mutex_);
  if (!FileIsOurs()) return nullptr;
  uint8_t* chunk = use_mmap_ ? MapChunk() : nullptr;
  if (!use_mmap_) {
    if (file_size_ != 0 && next_chunk_ == 0) {
      // The pages reserved for a mapping that was then refused.
      [[maybe_unused]] const int cut = ftruncate(fd_, 0);
      file_size_ = 0;
    }
    chunk = static_cast<uint8_t*>(runtime::MapPages(kChunkBytes));
  }
  if (chunk == nullptr) return nullptr;
  wire::PutChunkHeader(chunk, thread, next_sequence_++, now);
  // release: a reader of the growing file that sees the chunk sees its header.
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(chunk))
      .store(wire::ChunkOpeningWord(), std::memory_order_release);
  return chunk;
}

bool LogFile::AppendWhole(const uint8_t* chunk) noexcept {
  if (!WithinFileLimit(file_size_ + kChunkBytes)) return false;
  size_t done = 0;
  while (done < kChunkBytes) {
    const ssize_t written = pwrite(fd_, chunk + done, kChunkBytes - done,
                                   static_cast<off_t>(file_size_ + done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      [[maybe_unused]] const int cut =
          ftruncate(fd_, static_cast<off_t>(file_size_));
      return false;
    }
    done += static_cast<size_t>(written);
  }
  file_size_ += kChunkBytes;
  next_chunk_ = file_size_;
  return true;
}

void LogFile::CloseChunk(uint8_t* chunk, uint64_t last_time) noexcept {
  // release: who reads the last time sees every record of the chunk.
  std::atomic_ref<uint64_t>(
      *reinterpret_cast<uint64_t*>(chunk + wire::kLastTimeOffset))
      .store(last_time, std::memory_order_release);
  if (!use_mmap_) {
    const runtime::MutexLock lock(mutex_);
    if (!FileIsOurs() || !AppendWhole(chunk)) {
      // relaxed: see disk_full().
      disk_full_.store(true, std::memory_order_relaxed);
    }
  }
  runtime::UnmapPages(chunk, kChunkBytes);
}

void LogFile::Trim() noexcept {
  const runtime::MutexLock lock(mutex_);
  if (!FileIsOurs() || !use_mmap_ || next_chunk_ >= file_size_) return;
  if (ftruncate(fd_, static_cast<off_t>(next_chunk_)) == 0) {
    file_size_ = next_chunk_;
  }
}

void LogFile::AbandonInChild() noexcept {
  mutex_.ResetAfterFork();
  if (FileIsOurs()) close(fd_);
  fd_ = -1;
}

}  // namespace dstrace::log
