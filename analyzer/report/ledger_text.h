// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_LEDGER_TEXT_H_
#define DSTRACE_ANALYZER_REPORT_LEDGER_TEXT_H_

#include <string>
#include <vector>

#include "analyzer/model/run.h"
#include "analyzer/report/style.h"

namespace dstrace::report {

// The ledgers side by side in MiB, one column each (three fit 100 columns); the
// rows above the line add up to the one below it.
std::string LedgerText(const model::Device& device,
                       const std::vector<const model::Snapshot*>& snapshots,
                       uint64_t device_total, const Style& style);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_LEDGER_TEXT_H_
