// SPDX-License-Identifier: Apache-2.0
#include "analyzer/cli/doctor.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "analyzer/deepspeed/config_check.h"
#include "analyzer/deepspeed/expected_memory.h"
#include "analyzer/deepspeed/model_shape.h"
#include "analyzer/deepspeed/render.h"
#include "analyzer/deepspeed/verdict.h"

namespace dstrace::cli {
namespace {

using deepspeed::CheckOptions;
using deepspeed::Launcher;
using deepspeed::ModelShape;
using deepspeed::OptimizerKind;
using deepspeed::RuleSet;

constexpr char kUsage[] =
    "usage: dstrace doctor CONFIG.json [options]   (- reads standard input)\n"
    "  --world-size N            GPUs in the data-parallel group\n"
    "  --gpus-per-node N         default: all up to 8\n"
    "  --deepspeed-version V     default 0.19.6\n"
    "  --torch-version V         default 2.11\n"
    "  --launcher NAME           plain, hf-trainer or accelerate\n"
    "  --mics-init               the script wraps loading in MiCS_Init\n"
    "  --params N                parameters of the model (7e9)\n"
    "  --model-config FILE       Hugging Face config.json of the model\n"
    "  --optimizer NAME          adamw (torch) or fused\n"
    "  --rules FILE              more rules, in the format of the built-in "
    "ones\n"
    "  --json                    machine-readable output\n";

struct Arguments {
  std::string config;
  CheckOptions options;
  std::string model_config;
  std::string rules;
  std::optional<OptimizerKind> optimizer;
  bool json = false;
  bool help = false;
};

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

absl::Status SetValue(const std::string& name, const std::string& value,
                      Arguments* out) {
  CheckOptions& options = out->options;
  if (name == "--world-size") return SetCount(value, &options.world_size);
  if (name == "--gpus-per-node") {
    return SetCount(value, &options.gpus_per_node);
  }
  if (name == "--deepspeed-version") {
    return SetVersion(value, &options.version);
  }
  if (name == "--torch-version") {
    return SetVersion(value, &options.torch_version);
  }
  if (name == "--launcher") return SetLauncher(value, &options.launcher);
  if (name == "--params") return SetParams(value, &options.params);
  if (name == "--optimizer") return SetOptimizer(value, &out->optimizer);
  if (name == "--model-config") {
    out->model_config = value;
  } else if (name == "--rules") {
    out->rules = value;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("unknown option ", name));
  }
  return absl::OkStatus();
}

absl::StatusOr<Arguments> ParseArguments(int argc, char** argv) {
  Arguments out;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      out.help = true;
    } else if (name == "--json") {
      out.json = true;
    } else if (name == "--mics-init") {
      out.options.mics_init = true;
    } else if (name.size() > 2 && name.compare(0, 2, "--") == 0) {
      std::string value;
      size_t equals = name.find('=');
      if (equals != std::string::npos) {
        value = name.substr(equals + 1);
        name.resize(equals);
      } else if (i + 1 < argc) {
        value = argv[++i];
      } else {
        return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
      }
      absl::Status status = SetValue(name, value, &out);
      if (!status.ok()) return status;
    } else if (out.config.empty()) {
      out.config = name;
    } else {
      return absl::InvalidArgumentError(absl::StrCat("one config, not ", name));
    }
  }
  if (!out.help && out.config.empty()) {
    return absl::InvalidArgumentError("which config?");
  }
  return out;
}

// "AdamW" in the config makes DeepSpeed build FusedAdam; without an optimizer
// section the script brings its own, usually torch's.
OptimizerKind TellOptimizer(const Arguments& arguments,
                            const deepspeed::Settings& settings) {
  if (arguments.optimizer) return *arguments.optimizer;
  return settings.optimizer == "adam" || settings.optimizer == "adamw"
             ? OptimizerKind::kFusedAdam
             : OptimizerKind::kTorchAdam;
}

absl::StatusOr<std::string> Diagnose(Arguments arguments, bool* valid) {
  absl::StatusOr<std::string> text = ReadAll(arguments.config);
  if (!text.ok()) return text.status();
  RuleSet rules = RuleSet::BuiltIn();
  if (!arguments.rules.empty()) {
    absl::StatusOr<std::string> more = ReadAll(arguments.rules);
    if (!more.ok()) return more.status();
    absl::StatusOr<RuleSet> extended = RuleSet::WithExtension(*more);
    if (!extended.ok()) return extended.status();
    rules = *std::move(extended);
  }
  deepspeed::MemoryInputs inputs;
  if (!arguments.model_config.empty()) {
    absl::StatusOr<std::string> json = ReadAll(arguments.model_config);
    if (!json.ok()) return json.status();
    absl::StatusOr<ModelShape> shape = deepspeed::ReadModelConfig(*json);
    if (!shape.ok()) return shape.status();
    inputs.shape = *std::move(shape);
    arguments.options.params = inputs.shape.total();
    arguments.options.hidden_size = inputs.shape.hidden_size;
  }
  deepspeed::ConfigReport report =
      deepspeed::CheckConfig(*text, arguments.options, rules);
  deepspeed::Verdict verdict = deepspeed::JudgeConfig(report);
  inputs.params = arguments.options.params;
  inputs.settings = report.settings;
  inputs.torch_version = arguments.options.torch_version;
  inputs.optimizer = TellOptimizer(arguments, report.settings);
  std::optional<deepspeed::ExpectedMemory> expected;
  if (inputs.params > 0 && report.readable) {
    expected = deepspeed::ExpectMemory(inputs);
  }
  deepspeed::RenderInputs render{arguments.config, arguments.options, report,
                                 verdict, expected ? &*expected : nullptr};
  *valid = verdict.validity != deepspeed::Validity::kNotValid;
  return arguments.json ? deepspeed::RenderJson(render)
                        : deepspeed::RenderText(render);
}

}  // namespace

int DoctorMain(int argc, char** argv) {
  absl::StatusOr<Arguments> arguments = ParseArguments(argc, argv);
  if (!arguments.ok()) {
    std::fprintf(stderr, "dstrace doctor: %s\n%s",
                 std::string(arguments.status().message()).c_str(), kUsage);
    return 2;
  }
  if (arguments->help) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  bool valid = false;
  absl::StatusOr<std::string> text = Diagnose(*std::move(arguments), &valid);
  if (!text.ok()) {
    std::fprintf(stderr, "dstrace doctor: %s\n",
                 std::string(text.status().message()).c_str());
    return 2;
  }
  std::fputs(text->c_str(), stdout);
  return valid ? 0 : 1;
}

}  // namespace dstrace::cli
