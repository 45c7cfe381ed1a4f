// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/config_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/deepspeed/checks.h"
#include "analyzer/deepspeed/json_text.h"

namespace dstrace::deepspeed {
namespace {

void AddSyntax(const JsonText& json, std::vector<Finding>* findings) {
  for (const SyntaxProblem& problem : json.problems) {
    Finding finding;
    finding.severity = Severity::kError;
    finding.rule = "invalid-json";
    finding.place = {problem.place.line, problem.place.column, ""};
    finding.message = absl::StrCat("invalid JSON: ", problem.message, ".");
    if (problem.hjson_accepts) {
      finding.message +=
          " json.load and HF refuse the file; DeepSpeed itself, given the "
          "path, reads it with hjson and accepts this.";
    }
    finding.change = problem.change;
    finding.source = "runtime/config.py:686 (v0.10.1)";
    findings->push_back(std::move(finding));
  }
}

void AddDuplicates(const JsonText& json, std::vector<Finding>* findings) {
  for (const JsonMember& member : json.duplicates) {
    Finding finding;
    finding.severity = Severity::kError;
    finding.rule = "duplicate-key";
    finding.place = {member.place.line, member.place.column, member.key};
    finding.message = absl::StrFormat(
        "\"%s\" stands twice in one object: DeepSpeed refuses the file, and "
        "json.load silently takes the last.",
        member.key);
    finding.change = "remove one of them";
    finding.source = "runtime/config_utils.py:198 (v0.10.1)";
    findings->push_back(std::move(finding));
  }
}

void AddVersionNote(const CheckOptions& options, const RuleSet& rules,
                    std::vector<Finding>* findings) {
  if (options.version >= rules.first() && options.version <= rules.last()) {
    return;
  }
  Finding finding;
  finding.rule = "release-not-covered";
  finding.message = absl::StrFormat(
      "DeepSpeed %s is outside the releases these rules were read from (%s to "
      "%s).",
      FormatVersion(options.version), FormatVersion(rules.first()),
      FormatVersion(rules.last()));
  findings->push_back(std::move(finding));
}

// HF Trainer writes these three from the model's hidden size.
void FillAsHfTrainer(const ConfigView& view, Launcher launcher,
                     Settings* settings) {
  int64_t hidden = view.options().hidden_size;
  if (launcher != Launcher::kHfTrainer || hidden <= 0) return;
  if (view.IsAuto("zero_optimization.reduce_bucket_size")) {
    settings->reduce_bucket_size = hidden * hidden;
  }
  if (settings->stage != 3) return;
  if (view.IsAuto("zero_optimization.stage3_prefetch_bucket_size")) {
    settings->prefetch_bucket_size = hidden * hidden * 9 / 10;
  }
  if (view.IsAuto("zero_optimization.stage3_param_persistence_threshold")) {
    settings->param_persistence_threshold = 10 * hidden;
  }
}

}  // namespace

ConfigReport CheckConfig(std::string_view text, const CheckOptions& options,
                         const RuleSet& rules) {
  ConfigReport report;
  JsonText json = ReadJson(text);
  report.readable = json.complete;
  report.valid_json = json.complete && json.problems.empty();
  AddSyntax(json, &report.findings);
  AddDuplicates(json, &report.findings);
  ConfigView view(json.root, options, rules);
  report.launcher = TellLauncher(view);
  if (json.complete) {
    CheckCombinations(view, &report.findings);
    CheckKeys(view, &report.findings);
    CheckAuto(view, report.launcher, &report.findings);
    CheckBatch(view, report.launcher, &report.findings);
    AddVersionNote(options, rules, &report.findings);
    report.settings = ReadSettings(view);
    FillAsHfTrainer(view, report.launcher, &report.settings);
    report.sizes = ListSizes(view, report.launcher, report.settings);
  }
  SortFindings(&report.findings);
  return report;
}

int CountFindings(const std::vector<Finding>& findings, Severity severity) {
  return static_cast<int>(std::count_if(findings.begin(), findings.end(),
                                        [severity](const Finding& finding) {
                                          return finding.severity == severity;
                                        }));
}

}  // namespace dstrace::deepspeed
