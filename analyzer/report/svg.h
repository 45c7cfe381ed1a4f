// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_SVG_H_
#define DSTRACE_ANALYZER_REPORT_SVG_H_

#include <string>
#include <vector>

#include "analyzer/report/folded.h"

namespace dstrace::report {

// A flame graph of the stacks as one SVG file that needs nothing else: titles
// on hover, zoom by click, search, back by Escape. Root at the top, larger
// frames to the left. Every frame is in it, however narrow. Well-formed XML for
// any names.
std::string Svg(const std::vector<FoldedStack>& stacks,
                const std::string& title);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_SVG_H_
