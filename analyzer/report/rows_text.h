// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_ROWS_TEXT_H_
#define DSTRACE_ANALYZER_REPORT_ROWS_TEXT_H_

#include <string>
#include <vector>

#include "analyzer/report/style.h"
#include "analyzer/report/view.h"

namespace dstrace::report {

struct RowsOptions {
  size_t top = 10;
  size_t width = 100;
  bool stacks = false;
};

// Memory that no asker holds, shown among the rows by size.
struct Extra {
  std::string name;
  uint64_t bytes = 0;
};

// Holders of device memory: bytes, share of `whole`, count, and who asked.
std::string HoldersText(View& view, const std::vector<Row>& rows,
                        const std::vector<Extra>& extras, uint64_t whole,
                        const RowsOptions& options, const Style& style);
// What made torch reserve: bytes at the peak, over the run, count, who asked.
std::string GrowthText(View& view, const std::vector<Row>& rows,
                       const RowsOptions& options, const Style& style);
// Calls that failed and torch's out-of-memory errors, the same ones together.
std::string FailuresText(View& view,
                         const std::vector<model::Failure>& failures,
                         const RowsOptions& options, const Style& style);
// The frames of a stack, innermost first, one a line.
std::string StackText(View& view, model::StackId stack, size_t indent,
                      size_t width);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_ROWS_TEXT_H_
