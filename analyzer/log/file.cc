// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analyzer/log/unpack.h"

namespace dstrace::log {
namespace {

absl::Status ErrnoStatus(const std::string& what, int error) {
  const std::string text = absl::StrCat(what, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    default:
      return absl::UnavailableError(text);
  }
}

}  // namespace

absl::StatusOr<File> File::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(path, errno);
  File file(path, fd);
  struct stat stat {};
  if (fstat(fd, &stat) != 0) return ErrnoStatus(path, errno);
  if (S_ISDIR(stat.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a directory, not a trace file"));
  }
  if (!S_ISREG(stat.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is not a regular file"));
  }
  file.size_ = static_cast<uint64_t>(stat.st_size);
  file.inode_ = stat.st_ino;
  file.device_ = stat.st_dev;
  const absl::Status status = file.UnpackIfCompressed();
  if (!status.ok()) return status;
  return file;
}

// From here on the file is the memory it was unpacked into.
absl::Status File::UnpackIfCompressed() {
  std::array<uint8_t, 4> start{};
  const auto got = ReadAt(0, start);
  if (!got.ok()) return got.status();
  if (!IsCompressed({start.data(), *got})) return absl::OkStatus();
  const int memory = memfd_create("dstrace trace", MFD_CLOEXEC);
  if (memory < 0) return ErrnoStatus(path_, errno);
  auto unpacked = Unpack(*this, memory);
  close(std::exchange(fd_, memory));
  if (!unpacked.ok()) return unpacked.status();
  compressed_ = true;
  size_ = unpacked->size;
  notes_ = std::move(unpacked->notes);
  return absl::OkStatus();
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      inode_(other.inode_),
      device_(other.device_),
      compressed_(other.compressed_),
      notes_(std::move(other.notes_)) {}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<size_t> File::ReadAt(uint64_t offset,
                                    std::span<uint8_t> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = pread(fd_, out.data() + done, out.size() - done,
                              static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(Where(offset + done), errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

uint64_t File::CurrentSize() const {
  struct stat stat {};
  return fstat(fd_, &stat) == 0 ? static_cast<uint64_t>(stat.st_size) : size_;
}

std::string File::Where(uint64_t offset) const {
  return absl::StrCat(path_, compressed_ ? ": unpacked byte " : ": byte ",
                      offset);
}

}  // namespace dstrace::log
