// SPDX-License-Identifier: Apache-2.0
#include "analyzer/cli/options.h"

#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace dstrace::cli {
namespace {

absl::Status Bad(const std::string& option, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(option, " ", what));
}

// "12.3", "12.3s", "500ms", "2min" -> nanoseconds.
bool ParseTime(const std::string& text, uint64_t* out) {
  static constexpr std::pair<const char*, double> kUnits[] = {
      {"ms", 1e6}, {"us", 1e3}, {"ns", 1}, {"min", 60e9}, {"s", 1e9}};
  std::string number = text;
  double unit = 1e9;
  for (const auto& [name, factor] : kUnits) {
    if (!text.ends_with(name)) continue;
    number = text.substr(0, text.size() - std::string(name).size());
    unit = factor;
    break;
  }
  double value = 0;
  if (!absl::SimpleAtod(number, &value) || !(value >= 0) ||
      value * unit > 9e18) {
    return false;
  }
  *out = static_cast<uint64_t>(std::llround(value * unit));
  return true;
}

// "12.3s,@987654321": times since the start, or with @ nanoseconds of
// CLOCK_MONOTONIC.
bool ParseInstants(const std::string& text,
                   std::vector<Options::Instant>* out) {
  for (const auto word : absl::StrSplit(text, ',')) {
    Options::Instant instant;
    instant.monotonic = word.substr(0, 1) == "@";
    const bool good = instant.monotonic
                          ? absl::SimpleAtoi(word.substr(1), &instant.time_ns)
                          : ParseTime(std::string(word), &instant.time_ns);
    if (!good) return false;
    out->push_back(instant);
  }
  return true;
}

absl::Status SetAt(const std::string& value, Options* options) {
  using Kind = model::At::Kind;
  options->at = value;
  options->instants.clear();
  if (value != "peak" && value != "end" && !value.starts_with("mark:")) {
    if (!ParseInstants(value, &options->instants)) options->instants.clear();
  }
  if (value.find_first_of(",@") != value.npos && !options->instants.empty()) {
    options->instant = {};
  } else if (value == "peak" || value == "end") {
    options->instant = {};
  } else if (value.starts_with("mark:") && value.size() > 5) {
    options->instant = {Kind::kMark, 0, value.substr(5)};
  } else {
    options->instant = {Kind::kTime, 0, ""};
    if (!ParseTime(value, &options->instant.time_ns)) {
      return Bad("--at", absl::StrCat("is peak, end, a time such as 12.5s, or "
                                      "mark:NAME, not \"",
                                      value, "\""));
    }
  }
  return absl::OkStatus();
}

absl::Status SetFormat(const std::string& value, Options* options) {
  static const std::map<std::string, Format> formats = {
      {"text", Format::kText},
      {"json", Format::kJson},
      {"folded", Format::kFolded},
      {"svg", Format::kSvg},
      {"ledgers", Format::kLedgers}};
  const auto it = formats.find(value);
  if (it == formats.end()) {
    return Bad("--format",
               absl::StrCat("is text, json, folded, svg or ledgers, not \"",
                            value, "\""));
  }
  options->format = it->second;
  return absl::OkStatus();
}

absl::Status SetNumber(const std::string& name, const std::string& value,
                       int lowest, int* out) {
  if (absl::SimpleAtoi(value, out) && *out >= lowest) return absl::OkStatus();
  return Bad(name, absl::StrCat("needs a number from ", lowest, " on, not \"",
                                value, "\""));
}

absl::Status SetTop(const std::string& value, Options* options) {
  int top = 0;
  const absl::Status status = SetNumber("--top", value, 1, &top);
  options->top = static_cast<size_t>(top);
  return status;
}

absl::Status SetDevice(const std::string& value, Options* options) {
  int device = 0;
  const absl::Status status = SetNumber("--device", value, -1, &device);
  options->device = device;
  return status;
}

absl::Status SetWeight(const std::string& value, Options* options) {
  if (value != "held" && value != "reserved") {
    return Bad("--weight",
               absl::StrCat("is held or reserved, not \"", value, "\""));
  }
  options->reserved = value == "reserved";
  return absl::OkStatus();
}

absl::Status SetColour(const std::string& value, Options* options) {
  static const std::map<std::string, Colour> choices = {
      {"auto", Colour::kAuto},
      {"always", Colour::kAlways},
      {"never", Colour::kNever}};
  const auto it = choices.find(value);
  if (it == choices.end()) {
    return Bad("--color",
               absl::StrCat("is auto, always or never, not \"", value, "\""));
  }
  options->colour = it->second;
  return absl::OkStatus();
}

using Setter = std::function<absl::Status(const std::string&, Options*)>;

const std::map<std::string, Setter>& Setters() {
  static const std::map<std::string, Setter>* const setters =
      new std::map<std::string, Setter>{
          {"--at", SetAt},
          {"--format", SetFormat},
          {"--top", SetTop},
          {"--device", SetDevice},
          {"--weight", SetWeight},
          {"--color", SetColour},
          {"--output",
           [](const std::string& value, Options* options) {
             options->output = value;
             return absl::OkStatus();
           }},
          {"--deepspeed",
           [](const std::string& value, Options* options) {
             options->deepspeed.config = value;
             return absl::OkStatus();
           }},
          {"--rules", [](const std::string& value, Options* options) {
             options->rules.push_back(value);
             return absl::OkStatus();
           }}};
  return *setters;
}

bool SetFlag(const std::string& name, Options* options) {
  if (name == "--stacks") return options->stacks = true;
  if (name == "--help" || name == "-h") return options->help = true;
  if (name == "--version") return options->version = true;
  return false;
}

absl::Status Check(const Options& options) {
  if (options.help || options.version) return absl::OkStatus();
  if (options.files.empty()) {
    return absl::InvalidArgumentError(
        "no trace file given (dstrace-report --help)");
  }
  if (options.format == Format::kLedgers) {
    if (options.at == "peak" || !options.instants.empty()) {
      return absl::OkStatus();
    }
    return Bad("--at", "with --format ledgers is a list of times");
  }
  if (options.instants.size() > 1 ||
      (!options.instants.empty() && options.instants[0].monotonic)) {
    return Bad("--at", "takes several times or @ only with --format ledgers");
  }
  if (!options.deepspeed.config.empty() && options.format != Format::kText &&
      options.format != Format::kJson) {
    return Bad("--deepspeed", "goes with --format text or json");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& words) {
  Options options;
  bool only_files = false;
  std::string job_option;  // the last one that needs --deepspeed
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (only_files || word.size() < 2 || word[0] != '-') {
      options.files.push_back(word);
      continue;
    }
    if (word == "--") {
      only_files = true;
      continue;
    }
    if (SetFlag(word, &options)) continue;
    const size_t equals = word.starts_with("--") ? word.find('=') : word.npos;
    std::string name = word.substr(0, equals);
    if (name == "-o") name = "--output";
    const bool about_job = IsDeepspeedOption(name);
    const auto setter = Setters().find(name);
    if (setter == Setters().end() && !about_job) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown option ", word, " (dstrace-report --help)"));
    }
    if (equals == word.npos && i + 1 == words.size()) {
      return Bad(word, "needs a value");
    }
    const std::string value =
        equals == word.npos ? words[++i] : word.substr(equals + 1);
    const absl::Status status =
        about_job ? SetDeepspeedOption(name, value, &options.deepspeed)
                  : setter->second(value, &options);
    job_option = about_job ? name : job_option;
    if (!status.ok()) return status;
  }
  if (!job_option.empty() && options.deepspeed.config.empty()) {
    return Bad(job_option, "goes with --deepspeed ds_config.json");
  }
  const absl::Status status = Check(options);
  if (!status.ok()) return status;
  return options;
}

const char kUsage[] =
    R"(usage: dstrace-report FILE... [OPTION...]
       dstrace-report doctor CONFIG... (a DeepSpeed config, without a trace)
       dstrace-report compact FILE...  (compresses finished traces)

Says where GPU memory is, who asked for it and what to change, from the traces
that libdstrace.so wrote, compressed (.zst) or not.

  --at WHEN        the instant to look at: peak (the default), end, a time since
                   the start (12.5s, 300ms) or mark:NAME
  --format FORMAT  text (the default), json, folded (for flame-graph tools), or
                   svg (a flame graph for any browser); or ledgers (one line
                   of JSON per instant and GPU: every sample, or those of
                   --at T1,T2,...; @NS is a CLOCK_MONOTONIC time)
  -o FILE          write there instead of to standard output
  --top N          rows per table (text: 10; json: all)
  --device N       only this GPU, by CUDA ordinal
  --stacks         whole stacks with each row (text and json)
  --weight WHAT    folded and svg: held (the default) is what holds memory at
                   --at; reserved is who made torch reserve it
  --rules FILE     more rules that name stacks (JSON, see docs/rules.md); they
                   win over the built-in ones; may be given again
  --deepspeed FILE what the run should need by this DeepSpeed config against
                   what it took: verdict, differences, causes, changes (text
                   and json). With it, the model: --params N (7e9) or
                   --model-config FILE (Hugging Face config.json); and, where
                   the trace does not tell: --optimizer adamw|fused,
                   --world-size N, --gpus-per-node N, --deepspeed-version V,
                   --torch-version V, --launcher plain|hf-trainer|accelerate
  --color WHEN     auto (the default), always or never
  --version, --help

Several files give one report each and a table of all processes.
Exit status: 0, 1 for a file that cannot be read, 2 for bad usage.
)";

}  // namespace dstrace::cli
