// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_TEXT_H_
#define DSTRACE_ANALYZER_REPORT_TEXT_H_

#include <optional>
#include <string>

#include "analyzer/report/view.h"

namespace dstrace::report {

struct TextOptions {
  std::string at = "peak";    // name of the snapshot whose holders are listed
  size_t top = 10;            // rows per table
  std::optional<int> device;  // this GPU only
  bool stacks = false;        // whole stacks under the rows
  bool colour = false;
  size_t width = 100;  // columns; no line is wider
};

// The report for people. Not thread-safe on the same View.
std::string Text(View& view, const TextOptions& options);

// One line per process, to be printed under the reports of several files.
struct RankLine {
  std::string file;
  const model::Run* run = nullptr;
};
std::string RankTable(const std::vector<RankLine>& ranks, size_t width);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_TEXT_H_
