// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_CLI_OPTIONS_H_
#define DSTRACE_ANALYZER_CLI_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analyzer/cli/deepspeed_options.h"
#include "analyzer/model/build_run.h"

namespace dstrace::cli {

enum class Format { kText, kJson, kFolded, kSvg, kLedgers };
enum class Colour { kAuto, kAlways, kNever };

struct Options {
  std::vector<std::string> files;
  Format format = Format::kText;
  std::string output;       // empty: standard output
  std::string at = "peak";  // as the snapshot of it is named
  model::At instant;        // the same for BuildRun
  // With Format::kLedgers: the instants; none: every sample.
  struct Instant {
    uint64_t time_ns = 0;
    bool monotonic = false;  // CLOCK_MONOTONIC, not since the trace's start
  };
  std::vector<Instant> instants;
  std::optional<size_t> top;  // empty: the format's own default
  std::vector<std::string> rules;
  std::optional<int> device;
  bool stacks = false;
  bool reserved = false;  // --weight reserved
  // --deepspeed: compare with this config; otherwise `config` is empty.
  DeepspeedOptions deepspeed;
  Colour colour = Colour::kAuto;
  bool help = false;
  bool version = false;
};

// Parses the words after the program's name. Errors are one line for a person
// and name the option; the caller exits with status 2.
// Thread-safety: pure.
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& words);

extern const char kUsage[];

}  // namespace dstrace::cli

#endif  // DSTRACE_ANALYZER_CLI_OPTIONS_H_
