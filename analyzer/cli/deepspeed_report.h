// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_CLI_DEEPSPEED_REPORT_H_
#define DSTRACE_ANALYZER_CLI_DEEPSPEED_REPORT_H_

// "dstrace-report run.pb --deepspeed ds_config.json": a config against the
// trace of a run with it. Not thread-safe (reads files).

#include <string>

#include "absl/status/statusor.h"
#include "analyzer/cli/deepspeed_options.h"
#include "analyzer/deepspeed/measure_trace.h"
#include "analyzer/deepspeed/verdict.h"

namespace dstrace::cli {

struct DeepspeedResult {
  DeepspeedCase job;  // with what the trace told about it
  deepspeed::TraceMeasure measure;
  deepspeed::Verdict verdict;
};

// World size and torch version come from the trace where `options` does not
// give them. Errors are one line that names the file.
absl::StatusOr<DeepspeedResult> CompareTrace(const std::string& trace,
                                             const DeepspeedOptions& options,
                                             std::optional<int> device);

std::string RenderComparison(const std::string& trace,
                             const DeepspeedOptions& options,
                             const DeepspeedResult& result, bool json);

}  // namespace dstrace::cli

#endif  // DSTRACE_ANALYZER_CLI_DEEPSPEED_REPORT_H_
