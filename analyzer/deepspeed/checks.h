// SPDX-License-Identifier: Apache-2.0
//
// The single checks behind CheckConfig; each appends what it finds.
// Thread-safety: pure functions.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_CHECKS_H_
#define DSTRACE_ANALYZER_DEEPSPEED_CHECKS_H_

#include <string>
#include <vector>

#include "analyzer/deepspeed/config_view.h"

namespace dstrace::deepspeed {

// Combinations of values, from the rules' data.
void CheckCombinations(const ConfigView& view, std::vector<Finding>* findings);

// Unknown, misspelt, misplaced, deprecated and stage-foreign keys, and values
// of the wrong type. Keys that already have a finding are not repeated.
void CheckKeys(const ConfigView& view, std::vector<Finding>* findings);

// Values "auto" that nobody will replace.
void CheckAuto(const ConfigView& view, Launcher launcher,
               std::vector<Finding>* findings);

// train_batch_size against micro batch x accumulation x world size.
void CheckBatch(const ConfigView& view, Launcher launcher,
                std::vector<Finding>* findings);

// The launcher as given; else HF Trainer when a value is "auto" that no plain
// script could use.
Launcher TellLauncher(const ConfigView& view);

// The buffers in bytes.
std::vector<SizeRow> ListSizes(const ConfigView& view, Launcher launcher,
                               const Settings& settings);

// "1.00 GB (953.7 MiB)".
std::string ShowBytes(double bytes);

// How a release reads values: two generations of pydantic, and see KeyRule.
struct TypeRules {
  bool pydantic2 = true;
  bool strict = true;  // KeyRule::strict_since has come, or is not given
};

// A wrong value for the key, empty when DeepSpeed takes it.
std::string TypeProblem(const KeyRule& key, const JsonValue& value,
                        const TypeRules& rules);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_CHECKS_H_
