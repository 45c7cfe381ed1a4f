// SPDX-License-Identifier: Apache-2.0
#include "analyzer/cli/output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace dstrace::cli {
namespace {

absl::Status Failed(const std::string& name) {
  return absl::UnavailableError(
      absl::StrCat(name, ": cannot be written: ", std::strerror(errno)));
}

absl::Status WriteAll(int fd, const std::string& text,
                      const std::string& name) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EPIPE) return absl::OkStatus();
    if (wrote < 0) return Failed(name);
    done += static_cast<size_t>(wrote);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteOutput(const std::string& path, const std::string& text) {
  if (path.empty()) return WriteAll(STDOUT_FILENO, text, "standard output");
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return Failed(path);
  const absl::Status status = WriteAll(fd, text, path);
  if (close(fd) != 0 && status.ok()) return Failed(path);
  return status;
}

bool OutputIsTerminal() { return isatty(STDOUT_FILENO) == 1; }

size_t OutputWidth(size_t most) {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return most;
  }
  return std::clamp<size_t>(size.ws_col, 80, most);
}

}  // namespace dstrace::cli
