// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/compact.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "analyzer/log/unpack.h"

namespace dstrace::log {
namespace {

constexpr size_t kFrameBytes = 4 << 20;
constexpr int kLevel = 9;  // beyond it, time grows and the file hardly shrinks

absl::Status Failed(const std::string& name, const std::string& what) {
  return absl::UnavailableError(
      absl::StrCat(name, ": ", what, ": ", std::strerror(errno)));
}

// A file beside the one to be, gone at the end unless published.
class Draft {
 public:
  explicit Draft(const std::string& to) : to_(to), path_(to + ".XXXXXX") {
    fd_ = mkstemp(path_.data());
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (fd_ < 0) return;
    close(fd_);
    if (!published_) unlink(path_.c_str());
  }

  [[nodiscard]] int fd() const { return fd_; }
  absl::Status Append(std::span<const uint8_t> bytes) const;
  absl::Status LookLike(const File& from) const;
  absl::Status Publish();

 private:
  const std::string to_;
  std::string path_;
  int fd_;
  bool published_ = false;
};

absl::Status Draft::Append(std::span<const uint8_t> bytes) const {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return Failed(to_, "cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
}

absl::Status Draft::LookLike(const File& from) const {
  struct stat stat_of {};
  if (stat(from.path().c_str(), &stat_of) != 0) {
    return Failed(from.path(), "cannot be looked at");
  }
  const timespec times[] = {stat_of.st_atim, stat_of.st_mtim};
  if (fchmod(fd_, stat_of.st_mode & 0777) != 0 || futimens(fd_, times) != 0) {
    return Failed(to_, "cannot be given the permissions and the time");
  }
  return absl::OkStatus();
}

absl::Status Draft::Publish() {
  if (fsync(fd_) != 0) return Failed(to_, "cannot be written");
  const int renamed = renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, to_.c_str(),
                                RENAME_NOREPLACE);
  // Not every file system can; a link never replaces a file either.
  if (renamed != 0 && errno != EINVAL && errno != ENOSYS) {
    return Failed(to_, "cannot be made");
  }
  if (renamed != 0 && link(path_.c_str(), to_.c_str()) != 0) {
    return Failed(to_, "cannot be made");
  }
  if (renamed != 0) unlink(path_.c_str());
  published_ = true;
  return absl::OkStatus();
}

class Compacter {
 public:
  Compacter(const File& from, const Draft& draft)
      : from_(from),
        draft_(draft),
        compress_(ZSTD_createCCtx(), ZSTD_freeCCtx),
        unpack_(ZSTD_createDCtx(), ZSTD_freeDCtx) {}

  absl::StatusOr<uint64_t> Run();

 private:
  absl::Status WriteFrames();
  absl::Status CompareFrames();
  // The next frame's worth of the trace; empty at the end.
  absl::Status Read(uint64_t offset);
  [[nodiscard]] absl::Status Changed() const;

  const File& from_;
  const Draft& draft_;
  const std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> compress_;
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> unpack_;
  std::vector<uint8_t> plain_;
  std::vector<uint8_t> packed_;
  std::vector<size_t> frames_;  // compressed bytes of each
};

absl::StatusOr<uint64_t> Compacter::Run() {
  if (compress_ == nullptr || unpack_ == nullptr) {
    return absl::ResourceExhaustedError("no memory");
  }
  ZSTD_CCtx_setParameter(compress_.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(compress_.get(), ZSTD_c_checksumFlag, 1);
  if (const absl::Status status = WriteFrames(); !status.ok()) return status;
  if (const absl::Status status = CompareFrames(); !status.ok()) return status;
  uint64_t size = 0;
  for (const size_t bytes : frames_) size += bytes;
  return size;
}

absl::Status Compacter::Read(uint64_t offset) {
  const uint64_t left = from_.size() - std::min(from_.size(), offset);
  plain_.resize(std::min<uint64_t>(kFrameBytes, left));
  const auto got = from_.ReadAt(offset, plain_);
  if (!got.ok()) return got.status();
  return *got == plain_.size() ? absl::OkStatus() : Changed();
}

absl::Status Compacter::Changed() const {
  return absl::AbortedError(absl::StrCat(
      from_.path(), ": changed while it was being read; is it still written?"));
}

absl::Status Compacter::WriteFrames() {
  packed_.resize(ZSTD_compressBound(kFrameBytes));
  for (uint64_t at = 0; at < from_.size(); at += kFrameBytes) {
    if (absl::Status status = Read(at); !status.ok()) return status;
    const size_t size =
        ZSTD_compress2(compress_.get(), packed_.data(), packed_.size(),
                       plain_.data(), plain_.size());
    if (ZSTD_isError(size)) {
      return absl::InternalError(
          absl::StrCat(from_.path(), ": ", ZSTD_getErrorName(size)));
    }
    absl::Status status = draft_.Append({packed_.data(), size});
    if (!status.ok()) return status;
    frames_.push_back(size);
  }
  return absl::OkStatus();
}

// Reads both again: what was written is what is there, still.
absl::Status Compacter::CompareFrames() {
  std::vector<uint8_t> unpacked(kFrameBytes);
  uint64_t at = 0;
  off_t packed_at = 0;
  for (const size_t size : frames_) {
    if (absl::Status status = Read(at); !status.ok()) return status;
    const ssize_t read = pread(draft_.fd(), packed_.data(), size, packed_at);
    if (read < 0) return Failed(from_.path(), "cannot be read back");
    const size_t got =
        ZSTD_decompressDCtx(unpack_.get(), unpacked.data(), unpacked.size(),
                            packed_.data(), static_cast<size_t>(read));
    if (got != plain_.size() ||
        !std::equal(plain_.begin(), plain_.end(), unpacked.begin())) {
      return Changed();
    }
    at += plain_.size();
    packed_at += static_cast<off_t>(size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> Compact(const File& from, const std::string& to) {
  if (from.compressed()) {
    return absl::InvalidArgumentError(
        absl::StrCat(from.path(), ": is compressed already"));
  }
  if (from.size() > kMaxUnpackedBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(from.path(), ": more than ", kMaxUnpackedBytes >> 30,
                     " GiB, which dstrace-report could not read compressed"));
  }
  if (access(to.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(absl::StrCat(to, ": exists already"));
  }
  Draft draft(to);
  if (draft.fd() < 0) return Failed(to, "cannot be made");
  auto size = Compacter(from, draft).Run();
  if (!size.ok()) return size;
  if (auto status = draft.LookLike(from); !status.ok()) return status;
  if (auto status = draft.Publish(); !status.ok()) return status;
  return size;
}

}  // namespace dstrace::log
