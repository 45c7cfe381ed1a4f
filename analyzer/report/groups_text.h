// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_GROUPS_TEXT_H_
#define DSTRACE_ANALYZER_REPORT_GROUPS_TEXT_H_

// The table of NCCL's communicators and of CUDA graphs: what each took and
// still holds of one device.

#include <string>
#include <vector>

#include "analyzer/report/rows_text.h"
#include "analyzer/report/view.h"

namespace dstrace::report {

// A group that took device memory, with what it holds at two instants.
struct GroupRow {
  model::GroupId id = model::kNoGroup;
  const model::Group* group = nullptr;
  uint64_t at_peak = 0;
  uint64_t at_end = 0;
};

// Those of `device`, largest first.
std::vector<GroupRow> GroupRows(const model::Run& run,
                                const model::Device& device);

// "" where there is none.
std::string GroupsText(View& view, const model::Device& device,
                       const RowsOptions& options, const Style& style);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_GROUPS_TEXT_H_
