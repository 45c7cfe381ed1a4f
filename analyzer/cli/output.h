// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_CLI_OUTPUT_H_
#define DSTRACE_ANALYZER_CLI_OUTPUT_H_

#include <string>

#include "absl/status/status.h"

namespace dstrace::cli {

// Writes all of `text` to the file, or to standard output where `path` is
// empty. A reader that went away (EPIPE) is no error: it has what it wanted.
absl::Status WriteOutput(const std::string& path, const std::string& text);

// Columns of the terminal on standard output, between 80 and `most`; `most`
// where it is no terminal.
size_t OutputWidth(size_t most);
bool OutputIsTerminal();

}  // namespace dstrace::cli

#endif  // DSTRACE_ANALYZER_CLI_OUTPUT_H_
