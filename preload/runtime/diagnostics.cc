// SPDX-License-Identifier: Apache-2.0
#include "preload/runtime/diagnostics.h"

#include <unistd.h>

#include <cerrno>

#include "preload/runtime/config.h"
#include "preload/runtime/text.h"

namespace dstrace::runtime {

void Say(std::string_view text, std::string_view detail) noexcept {
  if (GetConfig().quiet) return;
  const int saved_errno = errno;
  Text<1024> line;
  line << "dstrace: " << text << detail << '\n';
  // Nothing can be done about a stderr that does not take it.
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, line.c_str(), line.view().size());
  errno = saved_errno;
}

}  // namespace dstrace::runtime
