// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_TIMELINE_TEXT_H_
#define DSTRACE_ANALYZER_REPORT_TIMELINE_TEXT_H_

#include <string>
#include <vector>

#include "analyzer/model/run.h"
#include "analyzer/report/style.h"

namespace dstrace::report {

// Device memory over time as an area plot of characters, at most `width`
// columns wide, the peak marked above it. Readable without colour. Empty where
// there are fewer than two instants.
std::string TimelineText(const model::Device& device, uint64_t duration_ns,
                         const std::vector<model::MarkPoint>& marks,
                         size_t width, const Style& style);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_TIMELINE_TEXT_H_
