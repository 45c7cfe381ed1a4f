// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_CUPTI_TEXT_H_
#define DSTRACE_ANALYZER_REPORT_CUPTI_TEXT_H_

#include <string>
#include <vector>

#include "analyzer/model/run.h"

namespace dstrace::report {

// "CUPTI saw 12 allocations, hooks saw 12: device memory 9 (244.0 MiB) and ..."
// Empty where CUPTI did not run (DSTRACE_CUPTI=1).
std::string CuptiText(const model::CuptiCheck& check);

// What to know about the two counts: mappings, memory of other processes and of
// graphs among the device memory, and mappings that CUPTI does not report.
std::vector<std::string> CuptiNotes(const model::CuptiCheck& check);

// True if CUPTI and the hooks counted the same, but for mappings that CUPTI did
// not report.
bool CuptiAgrees(const model::CuptiCheck& check);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_CUPTI_TEXT_H_
