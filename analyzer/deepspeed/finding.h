// SPDX-License-Identifier: Apache-2.0
//
// One statement of the doctor: what is wrong, where, what to write instead.
// Guarantee: a finding always carries the place in the config or the rows of
// the trace it rests on. Thread-safety: plain data. Units: bytes.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_FINDING_H_
#define DSTRACE_ANALYZER_DEEPSPEED_FINDING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dstrace::deepspeed {

enum class Severity { kNote, kWarning, kError };

// "error", "warning" or "note".
const char* SeverityName(Severity severity);

// Where in the config. line and column count from 1; 0 means that the finding
// is about something that is not written in the file.
struct Place {
  int line = 0;
  int column = 0;
  std::string key;  // dotted path, for example zero_optimization.stage
};

struct Finding {
  Severity severity = Severity::kNote;
  std::string rule;  // stable id
  Place place;
  std::string message;
  std::string change;            // what to write or do instead; empty: nothing
  std::string source;            // file:line of the DeepSpeed (or other) source
  std::optional<int64_t> bytes;  // what it costs on one GPU
  std::optional<int64_t> saving_bytes;  // what the change gives back
  std::vector<std::string> evidence;    // rows of the trace, one a line
};

// Errors first, then by bytes, then by place; stable.
void SortFindings(std::vector<Finding>* findings);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_FINDING_H_
