// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_JSON_VALUES_H_
#define DSTRACE_ANALYZER_REPORT_JSON_VALUES_H_

// The model's plain values as JSON: what needs neither stacks nor options.
//
// The names are those of the schema dstrace.report/1. They are part of what
// users' scripts read: one may be added, none changed or left out. Bytes and
// nanoseconds are whole numbers. Strings go as they are; whoever prints them
// deals with broken UTF-8.
//
// Thread-safety: pure functions.

#include <cstdint>
#include <nlohmann/json.hpp>

#include "analyzer/model/cupti_check.h"
#include "analyzer/model/run.h"

namespace dstrace::report {

using JsonValue = nlohmann::ordered_json;  // keys stay in the order written

[[nodiscard]] const char* LayerName(model::Layer layer);

// null where 0 says that nothing is known.
[[nodiscard]] JsonValue OrNull(uint64_t value);

[[nodiscard]] JsonValue ProcessObject(const model::Process& process);
[[nodiscard]] JsonValue LedgerObject(const model::Ledger& ledger);
[[nodiscard]] JsonValue SnapshotObject(const model::Snapshot& snapshot);
[[nodiscard]] JsonValue TimelineObject(const model::Device& device);
[[nodiscard]] JsonValue CuptiObject(const model::CuptiCheck& check);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_JSON_VALUES_H_
