// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_CUPTI_CHECK_H_
#define DSTRACE_ANALYZER_MODEL_CUPTI_CHECK_H_

// Holds what the hooks recorded against what CUPTI counted. Both count the
// same stretch of time: from CUPTI's first totals, which are zero, to its last.
// Not thread-safe.

#include "analyzer/model/events.h"
#include "analyzer/model/run.h"

namespace dstrace::model {

class CuptiCounter {
 public:
  void Add(const DeviceEvent& event);
  void Add(const CuptiTotals& totals);
  [[nodiscard]] const CuptiCheck& check() const { return check_; }

 private:
  CuptiCheck check_;
  CuptiCheck::Sums
      hooks_;  // up to now; becomes check_.hooks at the next totals
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_CUPTI_CHECK_H_
