// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_JSON_H_
#define DSTRACE_ANALYZER_REPORT_JSON_H_

#include <optional>
#include <string>
#include <vector>

#include "analyzer/model/ledger_series.h"
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

// One line: the ledger of one device at one instant. `start_ns` is the trace's
// start on CLOCK_MONOTONIC.
std::string LedgerLine(const std::string& file, uint64_t start_ns,
                       const model::LedgerPoint& point);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_JSON_H_
