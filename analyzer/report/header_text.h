// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_HEADER_TEXT_H_
#define DSTRACE_ANALYZER_REPORT_HEADER_TEXT_H_

#include <string>

#include "analyzer/model/run.h"
#include "analyzer/report/style.h"

namespace dstrace::report {

// Which process, on what, for how long, how it ended, and what was lost.
std::string HeaderText(const model::Run& run, size_t width, const Style& style);

// "exit status 0", "signal 9 (Killed)", ...
std::string EndText(const model::Process& process);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_HEADER_TEXT_H_
