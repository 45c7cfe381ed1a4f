// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_JSON_H_
#define DSTRACE_ANALYZER_REPORT_JSON_H_

#include <optional>
#include <string>
#include <vector>

#include "analyzer/report/view.h"

namespace dstrace::report {

struct JsonOptions {
  std::string at = "peak";
  size_t top = 0;  // rows per list, 0: all
  std::optional<int> device;
  bool stacks = false;  // each row with the frames of its largest stack
};

// The report for programs: an object of schema "dstrace.report/1", which
// docs/report-json.md describes. Bytes are bytes, times nanoseconds since the
// start of the trace. Fields are only ever added.
std::string Json(View& view, const JsonOptions& options);

// Several of them as one array.
std::string JsonArray(const std::vector<std::string>& reports);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_JSON_H_
