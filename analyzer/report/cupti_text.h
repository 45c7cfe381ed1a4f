// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_CUPTI_TEXT_H_
#define DSTRACE_ANALYZER_REPORT_CUPTI_TEXT_H_

#include <string>

#include "analyzer/model/run.h"

namespace dstrace::report {

// "CUPTI saw 12 allocations, hooks saw 12: device memory 9 (244.0 MiB) and ..."
// Empty where CUPTI did not run (DSTRACE_CUPTI=1).
std::string CuptiText(const model::CuptiCheck& check);

// True if CUPTI and the hooks counted the same.
bool CuptiAgrees(const model::CuptiCheck& check);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_CUPTI_TEXT_H_
