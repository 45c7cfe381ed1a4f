// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_FILE_H_
#define DSTRACE_ANALYZER_LOG_FILE_H_

// A regular file, read by position.
//
// pread instead of mmap: a writer may cut the reserved tail off a file at any
// time, and a mapping would turn that into SIGBUS.
//
// Thread-safety: thread-safe.

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dstrace::log {

class File {
 public:
  // Errors name `path`: not found, unreadable, not a regular file.
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
  // Size when the file was opened.
  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] uint64_t inode() const { return inode_; }
  [[nodiscard]] dev_t device() const { return device_; }

  // "path: byte N"
  [[nodiscard]] std::string Where(uint64_t offset) const;

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
  uint64_t size_ = 0;
  uint64_t inode_ = 0;
  dev_t device_ = 0;
};

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_FILE_H_
