// SPDX-License-Identifier: Apache-2.0
#include "preload/log/paged_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "proto/wire/layout.h"

namespace dstrace::log {
namespace {

using wire::kPageBytes;

constexpr size_t kPagesPerWrite = 64;

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

// libc's are cancellation points: a thread that is cancelled here would keep
// the log's lock for ever.
ssize_t Write(int fd, const uint8_t* from, size_t bytes,
              uint64_t offset) noexcept {
  return syscall(SYS_pwrite64, fd, from, bytes, offset);
}
ssize_t WriteParts(int fd, const iovec* parts, uint64_t count,
                   uint64_t offset) noexcept {
  return syscall(SYS_pwritev, fd, parts, count, offset, 0);
}

}  // namespace

OpenResult PagedFile::Open(const char* path) noexcept {
  const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0)
    return errno == EEXIST ? OpenResult::kExists : OpenResult::kFailed;
  fd_ = MoveHigh(fd);
  size_ = 0;
  space_ = 0;
  return Identify(fd_, &device_, &inode_) ? OpenResult::kOk
                                          : OpenResult::kFailed;
}

bool PagedFile::IsOurs() const noexcept {
  uint64_t device = 0;
  uint64_t inode = 0;
  return fd_ >= 0 && Identify(fd_, &device, &inode) && device == device_ &&
         inode == inode_;
}

bool PagedFile::IsWithinLimit(uint64_t size) const noexcept {
  rlimit limit;
  // Beyond the limit a write raises SIGXFSZ, which would end the program.
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
         limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur;
}

bool PagedFile::Refuse(int error) noexcept {
  refusal_ = error;
  return false;
}

// Where the file system knows how; the writes in Reserve() are what makes the
// pages part of the file.
bool PagedFile::TakeSpace(uint64_t bytes, uint64_t ahead) noexcept {
  if (size_ + bytes <= space_) return true;
  for (const uint64_t wanted : {std::max(bytes, ahead), bytes}) {
    // tmpfs minds the limit here.
    if (!IsWithinLimit(size_ + wanted)) {
      errno = EFBIG;
      continue;
    }
    if (syscall(SYS_fallocate, fd_, FALLOC_FL_KEEP_SIZE, size_, wanted) == 0 ||
        (errno != ENOSPC && errno != EDQUOT)) {
      space_ = size_ + wanted;
      return true;
    }
  }
  return Refuse(errno);
}

bool PagedFile::Reserve(uint64_t bytes, uint64_t ahead) noexcept {
  if (!IsWithinLimit(size_ + bytes)) return Refuse(EFBIG);
  if (!TakeSpace(bytes, ahead)) return false;
  iovec pages[kPagesPerWrite];
  for (iovec& page : pages) {
    page = {const_cast<uint8_t*>(kReservedPage.bytes), kPageBytes};
  }
  const uint64_t end = size_ + bytes;
  while (size_ < end) {
    const uint64_t count =
        std::min<uint64_t>((end - size_) / kPageBytes, kPagesPerWrite);
    const ssize_t written = WriteParts(fd_, pages, count, size_);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0 || written % static_cast<ssize_t>(kPageBytes) != 0) {
      Refuse(written < 0 ? errno : ENOSPC);
      CutTo(size_);  // to the last whole page: a cut one is not a valid field
      return false;
    }
    size_ += static_cast<uint64_t>(written);
  }
  return true;
}

bool PagedFile::WriteAt(const uint8_t* from, size_t bytes,
                        uint64_t offset) noexcept {
  // The program may have lowered the limit below what is reserved.
  if (!IsWithinLimit(offset + bytes)) return Refuse(EFBIG);
  size_t done = 0;
  while (done < bytes) {
    const ssize_t written =
        Write(fd_, from + done, bytes - done, offset + done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Refuse(written < 0 ? errno : ENOSPC);
    done += static_cast<size_t>(written);
  }
  return true;
}

// One call, since each pays the file system's journal. The kernel copies page
// after page in the order of the parts, and a thread that is killed ends
// between two pages.
bool PagedFile::WriteBehind(uint64_t first, const uint8_t* from, size_t bytes,
                            uint64_t offset) noexcept {
  constexpr size_t kFirst = sizeof first;
  if (!IsWithinLimit(offset + bytes)) return Refuse(EFBIG);
  const iovec parts[] = {{&first, kFirst},
                         {const_cast<uint8_t*>(from) + kFirst, bytes - kFirst}};
  const ssize_t written = WriteParts(fd_, parts, std::size(parts), offset);
  auto done = static_cast<size_t>(std::max<ssize_t>(written, 0));
  if (done == bytes) return true;
  // Interrupted, or refused, which is then said again.
  if (done < kFirst) {
    if (!WriteAt(reinterpret_cast<const uint8_t*>(&first), kFirst, offset)) {
      return false;
    }
    done = kFirst;
  }
  return WriteAt(from + done, bytes - done, offset + done);
}

bool PagedFile::Append(const uint8_t* from, size_t bytes) noexcept {
  if (!WriteAt(from, bytes, size_)) {
    CutTo(size_);
    return false;
  }
  size_ += bytes;
  return true;
}

uint8_t* PagedFile::Map(uint64_t offset, size_t bytes) noexcept {
  // MAP_POPULATE: what can be had in one call is no page fault inside a hook.
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
           fd_, static_cast<off_t>(offset));
  if (memory == MAP_FAILED) return nullptr;
  // A child of fork() has no business in its parent's log.
  madvise(memory, bytes, MADV_DONTFORK);
  return static_cast<uint8_t*>(memory);
}

bool PagedFile::CutTo(uint64_t size) noexcept {
  if (ftruncate(fd_, static_cast<off_t>(size)) != 0) return false;
  size_ = size;
  space_ = size;
  return true;
}

void PagedFile::AbandonInChild() noexcept {
  if (IsOurs()) close(fd_);
  fd_ = -1;
}

}  // namespace dstrace::log
