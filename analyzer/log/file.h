// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_FILE_H_
#define DSTRACE_ANALYZER_LOG_FILE_H_

// A regular file, read by position. A compressed one (unpack.h) is unpacked
// into memory when it is opened, and all offsets but those of notes() are of
// what it holds.
//
// pread instead of mmap: a writer may cut the reserved tail off a file at any
// time, and a mapping would turn that into SIGBUS.
//
// Thread-safety: thread-safe.

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dstrace::log {

class File {
 public:
  // Errors name `path`: not found, unreadable, not a regular file; compressed,
  // and nothing of it can be unpacked.
  static absl::StatusOr<File> Open(const std::string& path);

  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  // Fills as much of `out` as the file has from `offset`; returns the number of
  // bytes read, fewer only at the end of the file.
  absl::StatusOr<size_t> ReadAt(uint64_t offset, std::span<uint8_t> out) const;

  [[nodiscard]] const std::string& path() const { return path_; }
  // Size when the file was opened; of a compressed one, unpacked.
  [[nodiscard]] uint64_t size() const { return size_; }
  // Size now: somebody may be writing it.
  [[nodiscard]] uint64_t CurrentSize() const;
  [[nodiscard]] uint64_t inode() const { return inode_; }
  [[nodiscard]] dev_t device() const { return device_; }

  [[nodiscard]] bool compressed() const { return compressed_; }
  // What of a compressed file could not be unpacked.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  // "path: byte N", of a compressed file "path: unpacked byte N".
  [[nodiscard]] std::string Where(uint64_t offset) const;

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  absl::Status UnpackIfCompressed();

  std::string path_;
  int fd_;
  uint64_t size_ = 0;
  uint64_t inode_ = 0;
  dev_t device_ = 0;
  bool compressed_ = false;
  std::vector<std::string> notes_;
};

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_FILE_H_
