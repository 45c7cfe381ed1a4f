// SPDX-License-Identifier: Apache-2.0
//
// What "dstrace doctor" and "dstrace-report --deepspeed" have in common: the
// options about a DeepSpeed job, and what its config says about memory.
// Not thread-safe (reads files).
#ifndef DSTRACE_ANALYZER_CLI_DEEPSPEED_OPTIONS_H_
#define DSTRACE_ANALYZER_CLI_DEEPSPEED_OPTIONS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "analyzer/deepspeed/config_check.h"
#include "analyzer/deepspeed/expected_memory.h"

namespace dstrace::cli {

struct DeepspeedOptions {
  std::string config;  // path; "-": standard input
  deepspeed::CheckOptions check;
  bool world_size_given = false;
  bool torch_version_given = false;
  bool deepspeed_version_given = false;
  std::string model_config;  // path, may be empty
  std::string rules;         // path, may be empty
  std::optional<deepspeed::OptimizerKind> optimizer;
};

// False: no option of this kind, or one that takes no value.
bool IsDeepspeedOption(const std::string& name);

// Errors: InvalidArgument, one line that names the value.
absl::Status SetDeepspeedOption(const std::string& name,
                                const std::string& value,
                                DeepspeedOptions* options);

struct DeepspeedCase {
  deepspeed::CheckOptions options;
  deepspeed::ConfigReport report;
  deepspeed::MemoryInputs inputs;
  // nullopt: the model's size or the config is not known.
  std::optional<deepspeed::ExpectedMemory> expected;
};

// Reads the files and checks the config. Errors: a file that cannot be read, a
// model config that says too little.
absl::StatusOr<DeepspeedCase> ReadCase(const DeepspeedOptions& options);

}  // namespace dstrace::cli

#endif  // DSTRACE_ANALYZER_CLI_DEEPSPEED_OPTIONS_H_
