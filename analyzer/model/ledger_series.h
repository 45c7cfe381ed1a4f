// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_LEDGER_SERIES_H_
#define DSTRACE_ANALYZER_MODEL_LEDGER_SERIES_H_

// Exact ledgers at many instants, in one replay: what a check against another
// tool's figures needs, where a timeline's buckets are too coarse.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "analyzer/model/events.h"
#include "analyzer/model/run.h"

namespace dstrace::model {

struct LedgerPoint {
  uint64_t time_ns = 0;  // since the start of the trace
  int device = 0;
  Ledger ledger;
};

// One point per instant and device that was known by then. An instant holds
// after the events of its own time; beyond the last event it holds what was
// left. Without `times`: after every cuMemGetInfo sample, for its device.
// Errors: those of the replay. Thread-safety: as `source`.
absl::StatusOr<std::vector<LedgerPoint>> LedgerSeries(
    const EventSource& source, std::vector<uint64_t> times);

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_LEDGER_SERIES_H_
