// SPDX-License-Identifier: Apache-2.0
//
// Puts the expected memory beside the measured and says where the difference
// is, whether the set-up is valid and what to change. Guarantee: every
// finding carries its rows of the trace or its place in the config.
// Thread-safety: pure functions. Units: bytes on one GPU.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_VERDICT_H_
#define DSTRACE_ANALYZER_DEEPSPEED_VERDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/deepspeed/config_check.h"
#include "analyzer/deepspeed/expected_memory.h"
#include "analyzer/deepspeed/measured.h"

namespace dstrace::deepspeed {

enum class Validity { kValid, kValidBut, kNotValid };

// "valid", "valid, but" or "not valid".
const char* ValidityName(Validity validity);

struct ComparedRow {
  Phase phase = Phase::kLoad;
  std::string name;
  std::optional<int64_t> expected;
  std::optional<int64_t> measured;
  // The stacks behind a difference above 5 %, largest first.
  std::vector<std::string> evidence;
};

struct Verdict {
  Validity validity = Validity::kValid;
  std::string headline;  // one line, the answer
  std::vector<std::string> reasons;
  std::vector<Finding> findings;  // ranked: the first is the first cause
  std::vector<ComparedRow> rows;
};

// The verdict on a config alone.
Verdict JudgeConfig(const ConfigReport& config);

// The verdict on a config and what a run measured.
Verdict Judge(const ConfigReport& config, const MemoryInputs& inputs,
              const ExpectedMemory& expected, const Measured& measured);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_VERDICT_H_
