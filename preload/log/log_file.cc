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

#include "preload/runtime/diagnostics.h"
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
  checkpointer_ = options.checkpointer;
  said_over_limit_ = false;
  const uint64_t limit =
      options.limit_bytes == 0
          ? 0
          : std::max<uint64_t>(options.limit_bytes / kChunkBytes, 1);
  if (!recycler_.Start(limit)) return OpenResult::kFailed;
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
  growth = std::min(growth, recycler_.GrowthLeft(file_size_));
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
  uint8_t* const chunk = MapAt(next_chunk_);
  if (chunk == nullptr) {
    if (next_chunk_ == 0) use_mmap_ = false;
    return nullptr;
  }
  next_chunk_ += kChunkBytes;
  return chunk;
}

uint8_t* LogFile::MapAt(uint64_t offset) noexcept {
  // MAP_POPULATE: one call now instead of sixteen page faults inside hooks.
  void* chunk =
      mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_POPULATE, fd_, static_cast<off_t>(offset));
  if (chunk == MAP_FAILED) return nullptr;
  // A child of fork() has no business in its parent's log.
  madvise(chunk, kChunkBytes, MADV_DONTFORK);
  return static_cast<uint8_t*>(chunk);
}

// A place that is written again, as reserved space, or a new one.
uint8_t* LogFile::MapFree(uint32_t* place) noexcept {
  *place = recycler_.TakeFree();
  if (*place == Recycler::kNone) {
    *place = static_cast<uint32_t>(next_chunk_ / kChunkBytes);
    return MapChunk();
  }
  uint8_t* const chunk = MapAt(uint64_t{*place} * kChunkBytes);
  if (chunk == nullptr) {
    recycler_.PutBack(*place);
    return nullptr;
  }
  // acq_rel: the acquire half keeps the new header's bytes behind this store,
  // so that a reader who sees them sees that the old chunk is gone.
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(chunk))
      .exchange(wire::ReservedChunkWord(), std::memory_order_acq_rel);
  return chunk;
}

void LogFile::BeginCheckpoint() noexcept {
  const runtime::MutexLock lock(mutex_);
  recycler_.BeginCheckpoint();
}

void LogFile::TakeCheckpoint() noexcept {
  uint64_t time = 0;
  const bool complete = checkpointer_.write(checkpointer_.context, &time);
  const runtime::MutexLock lock(mutex_);
  if (complete) recycler_.CommitCheckpoint(time);
}

// Published before any byte of what it gives up is written again.
void LogFile::ForgetOldest() noexcept {
  const runtime::MutexLock lock(mutex_);
  checkpointer_.publish(checkpointer_.context, recycler_.OldestCheckpoint());
  recycler_.ForgetBeforeOldest();
}

// Only the thread that makes room changes what these questions are about, or
// another one makes it worse by a chunk; so each is asked anew.
void LogFile::MakeRoom() noexcept {
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
    TakeCheckpoint();
  }
  if (ask(is_short) && !ask(has_one)) TakeCheckpoint();
  while (ask(is_short) && ask(has_one)) ForgetOldest();
  if (!said_over_limit_ &&
      ask([size](const Recycler& r) { return r.IsOverLimit(size); })) {
    said_over_limit_ = true;
    runtime::Say(
        "DSTRACE_LOG_LIMIT is too small for what is live, open and defined; "
        "the trace grows beyond it");
  }
}

uint8_t* LogFile::OpenChunk(uint32_t thread, uint64_t now,
                            ChunkUse use) noexcept {
  // The limit is set once, before any thread opens a chunk.
  if (!recycler_.on()) {
    const runtime::MutexLock lock(mutex_);
    return OpenLocked(thread, now, use);
  }
  for (int attempt = 0;; ++attempt) {
    if (use == ChunkUse::kHistory) MakeRoom();
    const runtime::MutexLock lock(mutex_);
    uint8_t* const chunk = OpenLocked(thread, now, use);
    if (chunk != nullptr || attempt > 0 || !disk_full()) return chunk;
    // A disk that is full before the limit is reached is the limit.
    recycler_.StopGrowing();
  }
}

uint8_t* LogFile::OpenLocked(uint32_t thread, uint64_t now,
                             ChunkUse use) noexcept {
  if (!FileIsOurs()) return nullptr;
  uint8_t* chunk = nullptr;
  uint32_t place = Recycler::kNone;
  if (use_mmap_) chunk = recycler_.on() ? MapFree(&place) : MapChunk();
  if (!use_mmap_) {
    place = recycler_.TakeFree();  // kNone: a new place when it is closed
    if (file_size_ != 0 && next_chunk_ == 0) {
      // The pages reserved for a mapping that was then refused.
      [[maybe_unused]] const int cut = ftruncate(fd_, 0);
      file_size_ = 0;
    }
    chunk = static_cast<uint8_t*>(runtime::MapPages(kChunkBytes));
  }
  if (chunk == nullptr) return nullptr;
  recycler_.OnOpened({.chunk = chunk, .place = place, .use = use});
  wire::PutChunkHeader(chunk, thread, next_sequence_++, now);
  // release: a reader of the growing file that sees the chunk sees its header.
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(chunk))
      .store(wire::ChunkOpeningWord(), std::memory_order_release);
  return chunk;
}

bool LogFile::WriteAt(const uint8_t* from, size_t size,
                      uint64_t offset) noexcept {
  size_t done = 0;
  while (done < size) {
    const ssize_t written = pwrite(fd_, from + done, size - done,
                                   static_cast<off_t>(offset + done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += static_cast<size_t>(written);
  }
  return true;
}

bool LogFile::AppendWhole(const uint8_t* chunk) noexcept {
  if (!WithinFileLimit(file_size_ + kChunkBytes)) return false;
  if (!WriteAt(chunk, kChunkBytes, file_size_)) {
    [[maybe_unused]] const int cut =
        ftruncate(fd_, static_cast<off_t>(file_size_));
    return false;
  }
  file_size_ += kChunkBytes;
  next_chunk_ = file_size_;
  return true;
}

// As in a mapping: reserved space, the new chunk behind its first word, then
// that word.
bool LogFile::WriteOver(const uint8_t* chunk, uint64_t offset) noexcept {
  const uint64_t reserved = wire::ReservedChunkWord();
  constexpr size_t kWord = sizeof reserved;
  const auto* const word = reinterpret_cast<const uint8_t*>(&reserved);
  return WriteAt(word, kWord, offset) &&
         WriteAt(chunk + kWord, kChunkBytes - kWord, offset + kWord) &&
         WriteAt(chunk, kWord, offset);
}

bool LogFile::WriteClosed(const uint8_t* chunk, uint32_t* place) noexcept {
  if (*place != Recycler::kNone) {
    return WriteOver(chunk, uint64_t{*place} * kChunkBytes);
  }
  *place = static_cast<uint32_t>(file_size_ / kChunkBytes);
  return AppendWhole(chunk);
}

void LogFile::CloseChunk(uint8_t* chunk, uint64_t last_time) noexcept {
  // release: who reads the last time sees every record of the chunk.
  std::atomic_ref<uint64_t>(
      *reinterpret_cast<uint64_t*>(chunk + wire::kLastTimeOffset))
      .store(last_time, std::memory_order_release);
  if (!use_mmap_ || recycler_.on()) {
    const runtime::MutexLock lock(mutex_);
    Recycler::Open open = recycler_.OnClosed(chunk);
    if (!use_mmap_ && (!FileIsOurs() || !WriteClosed(chunk, &open.place))) {
      // relaxed: see disk_full().
      disk_full_.store(true, std::memory_order_relaxed);
    }
    recycler_.OnPlaced(open);
  }
  if (use_mmap_) {
    munmap(chunk, kChunkBytes);
  } else {
    runtime::UnmapPages(chunk, kChunkBytes);
  }
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
  checkpoint_mutex_.ResetAfterFork();
  if (FileIsOurs()) close(fd_);
  fd_ = -1;
}

}  // namespace dstrace::log
