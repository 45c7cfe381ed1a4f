// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_VERDICT_H_
#define DSTRACE_ANALYZER_REPORT_VERDICT_H_

#include <string>
#include <vector>

#include "analyzer/model/run.h"
#include "analyzer/report/view.h"

namespace dstrace::report {

// Where the memory of a device is, in a few plain sentences: what nvidia-smi
// and torch would say and what lies between; what most of it is, who asked, and
// what to change where a rule knows. Says nothing that the trace does not hold.
std::vector<std::string> Verdict(View& view, const model::Device& device,
                                 const model::Snapshot& snapshot);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_VERDICT_H_
