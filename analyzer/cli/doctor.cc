// SPDX-License-Identifier: Apache-2.0
#include "analyzer/cli/doctor.h"

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "analyzer/cli/deepspeed_options.h"
#include "analyzer/deepspeed/render.h"
#include "analyzer/deepspeed/verdict.h"

namespace dstrace::cli {
namespace {

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
  DeepspeedOptions job;
  bool json = false;
  bool help = false;
};

absl::Status SetValue(const std::string& name, const std::string& value,
                      Arguments* out) {
  if (name == "--rules") {
    out->job.rules = value;
    return absl::OkStatus();
  }
  return SetDeepspeedOption(name, value, &out->job);
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
      out.job.check.mics_init = true;
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
    } else if (out.job.config.empty()) {
      out.job.config = name;
    } else {
      return absl::InvalidArgumentError(absl::StrCat("one config, not ", name));
    }
  }
  if (!out.help && out.job.config.empty()) {
    return absl::InvalidArgumentError("which config?");
  }
  return out;
}

absl::StatusOr<std::string> Diagnose(const Arguments& arguments, bool* valid) {
  absl::StatusOr<DeepspeedCase> job = ReadCase(arguments.job);
  if (!job.ok()) return job.status();
  deepspeed::Verdict verdict = deepspeed::JudgeConfig(job->report);
  deepspeed::RenderInputs render{arguments.job.config, job->options,
                                 job->report, verdict,
                                 job->expected ? &*job->expected : nullptr};
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
  absl::StatusOr<std::string> text = Diagnose(*arguments, &valid);
  if (!text.ok()) {
    std::fprintf(stderr, "dstrace doctor: %s\n",
                 std::string(text.status().message()).c_str());
    return 2;
  }
  std::fputs(text->c_str(), stdout);
  return valid ? 0 : 1;
}

}  // namespace dstrace::cli
