// SPDX-License-Identifier: Apache-2.0
//
// Reads a DeepSpeed config the way one release of DeepSpeed would and says
// what is wrong with it, without a GPU and without a trace. Guarantee: an
// error is something that fails or cannot work in that release; what is only
// ignored or costly is a warning or a note. Thread-safety: pure functions.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_CONFIG_CHECK_H_
#define DSTRACE_ANALYZER_DEEPSPEED_CONFIG_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/deepspeed/finding.h"
#include "analyzer/deepspeed/rules.h"
#include "analyzer/deepspeed/settings.h"
#include "analyzer/deepspeed/version.h"

namespace dstrace::deepspeed {

// Who hands the config to DeepSpeed: HF Trainer and Accelerate replace some
// "auto" values, a plain script replaces none. kUnknown: told from the config.
enum class Launcher { kUnknown, kPlain, kHfTrainer, kAccelerate };

struct CheckOptions {
  Version version{0, 19, 6};
  Version torch_version{2, 11, 0};
  int world_size = 0;     // GPUs in the data-parallel group; 0: not known
  int gpus_per_node = 0;  // 0: all on one node up to 8, then 8 a node
  Launcher launcher = Launcher::kUnknown;
  // Whether the script wraps loading in deepspeed.zero.MiCS_Init; the caller
  // says so. A trace cannot: what MiCS_Init lets allocate runs in the methods
  // of zero.Init, and its own frames appear in forward whoever opened the
  // context.
  std::optional<bool> mics_init;
  // What a trace shows of it; nullopt: as the release does.
  std::optional<bool> states_at_first_step;
  int64_t params = 0;       // of the whole model; 0: not known
  int64_t hidden_size = 0;  // 0: not known
};

// A setting that counts elements, in bytes.
struct SizeRow {
  std::string key;
  int64_t elements = 0;
  int64_t bytes = 0;
  std::string origin;  // "set", "default", "\"auto\", default"
  std::string meaning;
  int line = 0;
};

struct ConfigReport {
  bool readable = false;  // false: the JSON could not be read to its end
  bool valid_json = false;
  Launcher launcher = Launcher::kUnknown;  // as given or as told
  std::vector<Finding> findings;           // sorted
  std::vector<SizeRow> sizes;
  Settings settings;
};

ConfigReport CheckConfig(std::string_view json, const CheckOptions& options,
                         const RuleSet& rules = RuleSet::BuiltIn());

int CountFindings(const std::vector<Finding>& findings, Severity severity);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_CONFIG_CHECK_H_
