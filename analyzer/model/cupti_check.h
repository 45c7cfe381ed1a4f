// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_CUPTI_CHECK_H_
#define DSTRACE_ANALYZER_MODEL_CUPTI_CHECK_H_

// Holds what the hooks recorded against what CUPTI counted. Both count the
// same stretch of time: from CUPTI's first totals, which are zero, to its last.
// Not thread-safe.

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "analyzer/model/events.h"
#include "analyzer/model/run.h"

namespace dstrace::model {

// What CUPTI would count as allocations of device memory.
[[nodiscard]] inline CuptiCheck::Sum HooksOnDevice(const CuptiCheck& check) {
  CuptiCheck::Sum all;
  for (const CuptiCheck::Sum& sum : {check.hooks.device, check.hooks.mapped,
                                     check.hooks.opened, check.hooks.graphs}) {
    all.count += sum.count;
    all.bytes += sum.bytes;
  }
  return all;
}

// True if that is what CUPTI counted: the count and the bytes, where the size
// of each is known. Mappings that CUPTI did not report are no difference.
[[nodiscard]] inline bool DeviceMemoryAgrees(const CuptiCheck& check) {
  const CuptiCheck::Sum& cupti = check.cupti.device;
  const CuptiCheck::Sum hooks = HooksOnDevice(check);
  if (check.unreported.count > 0) return true;
  if (check.opened_unsized > 0) {
    return cupti.count == hooks.count && cupti.bytes > hooks.bytes;
  }
  if (cupti.bytes != hooks.bytes) return false;
  return cupti.count == hooks.count ||
         (check.hooks.graphs.count > 0 && cupti.count > hooks.count);
}

class CuptiCounter {
 public:
  void Add(const DeviceEvent& event);
  void Add(const CuptiTotals& totals);
  [[nodiscard]] const CuptiCheck& check() const { return check_; }

 private:
  void NoteHandle(const DeviceEvent& event);
  void AddMapping(const DeviceEvent& event);
  void AddGraphMemory(const DeviceEvent& event);
  void FindUnreported();

  CuptiCheck check_;
  absl::flat_hash_set<uint64_t>
      foreign_;                     // handles of no device memory of ours
  std::vector<uint64_t> mappings_;  // sizes
  uint64_t opened_unsized_ = 0;
  std::vector<uint64_t> graph_bytes_;  // by device, when last asked
  CuptiCheck::Sums
      hooks_;  // up to now; becomes check_.hooks at the next totals
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_CUPTI_CHECK_H_
