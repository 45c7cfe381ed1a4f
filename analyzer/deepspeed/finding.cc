// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/finding.h"

#include <algorithm>

namespace dstrace::deepspeed {

const char* SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      break;
  }
  return "note";
}

void SortFindings(std::vector<Finding>* findings) {
  std::stable_sort(findings->begin(), findings->end(),
                   [](const Finding& a, const Finding& b) {
                     if (a.severity != b.severity)
                       return a.severity > b.severity;
                     int64_t left = a.bytes.value_or(0);
                     int64_t right = b.bytes.value_or(0);
                     if (left != right) return left > right;
                     return a.place.line < b.place.line;
                   });
}

}  // namespace dstrace::deepspeed
