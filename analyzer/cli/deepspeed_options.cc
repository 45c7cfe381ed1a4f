// SPDX-License-Identifier: Apache-2.0
#include "analyzer/cli/deepspeed_options.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "analyzer/deepspeed/model_shape.h"
#include "analyzer/deepspeed/rules.h"

namespace dstrace::cli {
namespace {

using deepspeed::CheckOptions;
using deepspeed::Launcher;
using deepspeed::ModelShape;
using deepspeed::OptimizerKind;
using deepspeed::RuleSet;

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  // A config is small; a larger file is not one.
  constexpr size_t kMostBytes = 64u << 20;
  FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
  }
  std::string text;
  char buffer[16384];
  size_t got = 0;
  while (text.size() < kMostBytes &&
         (got = std::fread(buffer, 1, sizeof(buffer), file)) > 0) {
    text.append(buffer, got);
  }
  bool failed = std::ferror(file) != 0;
  if (file != stdin) std::fclose(file);
  if (failed) return absl::DataLossError(absl::StrCat("cannot read ", path));
  if (text.size() >= kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no config"));
  }
  return text;
}

absl::Status SetCount(const std::string& text, int* count) {
  if (absl::SimpleAtoi(text, count) && *count > 0 && *count <= 1000000) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("not a positive number: ", text));
}

absl::Status SetParams(const std::string& text, int64_t* params) {
  double value = 0;
  if (absl::SimpleAtod(text, &value) && value >= 1 && value <= 1e15) {
    *params = static_cast<int64_t>(value);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("not a parameter count: ", text));
}

absl::Status SetVersion(const std::string& text, deepspeed::Version* version) {
  absl::StatusOr<deepspeed::Version> parsed = deepspeed::ParseVersion(text);
  if (!parsed.ok()) return parsed.status();
  *version = *parsed;
  return absl::OkStatus();
}

absl::Status SetLauncher(const std::string& text, Launcher* launcher) {
  if (text == "plain") {
    *launcher = Launcher::kPlain;
  } else if (text == "hf-trainer") {
    *launcher = Launcher::kHfTrainer;
  } else if (text == "accelerate") {
    *launcher = Launcher::kAccelerate;
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "--launcher knows plain, hf-trainer and accelerate, not ", text));
  }
  return absl::OkStatus();
}

absl::Status SetOptimizer(const std::string& text,
                          std::optional<OptimizerKind>* optimizer) {
  if (text != "adamw" && text != "fused") {
    return absl::InvalidArgumentError(
        absl::StrCat("--optimizer knows adamw and fused, not ", text));
  }
  *optimizer =
      text == "fused" ? OptimizerKind::kFusedAdam : OptimizerKind::kTorchAdam;
  return absl::OkStatus();
}

// "AdamW" in the config makes DeepSpeed build FusedAdam; without an optimizer
// section the script brings its own, usually torch's.
OptimizerKind TellOptimizer(const DeepspeedOptions& options,
                            const deepspeed::Settings& settings) {
  if (options.optimizer) return *options.optimizer;
  return settings.optimizer == "adam" || settings.optimizer == "adamw"
             ? OptimizerKind::kFusedAdam
             : OptimizerKind::kTorchAdam;
}

absl::StatusOr<RuleSet> ReadRules(const std::string& path) {
  if (path.empty()) return RuleSet::BuiltIn();
  absl::StatusOr<std::string> more = ReadAll(path);
  if (!more.ok()) return more.status();
  return RuleSet::WithExtension(*more);
}

}  // namespace

bool IsDeepspeedOption(const std::string& name) {
  for (const char* known :
       {"--world-size", "--gpus-per-node", "--deepspeed-version",
        "--torch-version", "--launcher", "--params", "--model-config",
        "--optimizer"}) {
    if (name == known) return true;
  }
  return false;
}

absl::Status SetDeepspeedOption(const std::string& name,
                                const std::string& value,
                                DeepspeedOptions* out) {
  CheckOptions& options = out->check;
  if (name == "--world-size") {
    out->world_size_given = true;
    return SetCount(value, &options.world_size);
  }
  if (name == "--gpus-per-node") {
    return SetCount(value, &options.gpus_per_node);
  }
  if (name == "--deepspeed-version") {
    out->deepspeed_version_given = true;
    return SetVersion(value, &options.version);
  }
  if (name == "--torch-version") {
    out->torch_version_given = true;
    return SetVersion(value, &options.torch_version);
  }
  if (name == "--launcher") return SetLauncher(value, &options.launcher);
  if (name == "--params") return SetParams(value, &options.params);
  if (name == "--optimizer") return SetOptimizer(value, &out->optimizer);
  if (name == "--model-config") {
    out->model_config = value;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown option ", name));
}

absl::StatusOr<DeepspeedCase> ReadCase(const DeepspeedOptions& options) {
  DeepspeedCase out;
  out.options = options.check;
  absl::StatusOr<std::string> text = ReadAll(options.config);
  if (!text.ok()) return text.status();
  absl::StatusOr<RuleSet> rules = ReadRules(options.rules);
  if (!rules.ok()) return rules.status();
  if (!options.model_config.empty()) {
    absl::StatusOr<std::string> json = ReadAll(options.model_config);
    if (!json.ok()) return json.status();
    absl::StatusOr<ModelShape> shape = deepspeed::ReadModelConfig(*json);
    if (!shape.ok()) return shape.status();
    out.inputs.shape = *std::move(shape);
    out.options.params = out.inputs.shape.total();
    out.options.hidden_size = out.inputs.shape.hidden_size;
  }
  out.report = deepspeed::CheckConfig(*text, out.options, *rules);
  out.inputs.params = out.options.params;
  out.inputs.settings = out.report.settings;
  out.inputs.torch_version = out.options.torch_version;
  out.inputs.optimizer = TellOptimizer(options, out.report.settings);
  if (out.inputs.params > 0 && out.report.readable) {
    out.expected = deepspeed::ExpectMemory(out.inputs);
  }
  return out;
}

}  // namespace dstrace::cli
