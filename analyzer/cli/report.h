// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_CLI_REPORT_H_
#define DSTRACE_ANALYZER_CLI_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "analyzer/cli/options.h"

namespace dstrace::cli {

// Reads the traces of `options` and renders them. Errors are one line that
// names the file (and the byte, where there is one).
absl::StatusOr<std::string> Render(const Options& options);

}  // namespace dstrace::cli

#endif  // DSTRACE_ANALYZER_CLI_REPORT_H_
