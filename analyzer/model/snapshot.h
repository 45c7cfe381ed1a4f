// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_SNAPSHOT_H_
#define DSTRACE_ANALYZER_MODEL_SNAPSHOT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "analyzer/model/memory_state.h"
#include "analyzer/model/run.h"

namespace dstrace::model {

// Ledger and holdings of one device as `state` has them. `first_sample` of the
// whole run serves where no sample has been seen yet. `holdings` has what is on
// the device and, beside it, pinned host memory.
Snapshot TakeSnapshot(const MemoryState& state, int device, uint64_t time_ns,
                      std::string name,
                      const std::optional<Anchor>& first_sample);

// The ledger alone.
Ledger MakeLedger(const MemoryState& state, int device, uint64_t time_ns,
                  const std::optional<Anchor>& first_sample);

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_SNAPSHOT_H_
