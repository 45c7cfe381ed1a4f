// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "analyzer/deepspeed/evidence.h"
#include "analyzer/deepspeed/render.h"

namespace dstrace::deepspeed {
namespace {

constexpr size_t kWidth = 96;
constexpr char kIndent[] = "        ";

const char* LauncherName(Launcher launcher) {
  switch (launcher) {
    case Launcher::kPlain:
      return "a plain script";
    case Launcher::kHfTrainer:
      return "HF Trainer";
    case Launcher::kAccelerate:
      return "Accelerate";
    case Launcher::kUnknown:
      break;
  }
  return "";
}

// Words onto lines of kWidth, the second and later ones indented.
std::string Wrap(const std::string& text, const std::string& first,
                 const std::string& indent) {
  std::string out = first;
  size_t column = first.size();
  bool fresh = true;
  for (const auto& word : absl::StrSplit(text, ' ')) {
    if (!fresh && column + 1 + word.size() > kWidth) {
      absl::StrAppend(&out, "\n", indent);
      column = indent.size();
    } else if (!fresh) {
      out += ' ';
      ++column;
    }
    absl::StrAppend(&out, word);
    column += word.size();
    fresh = false;
  }
  return out + "\n";
}

std::string Where(const Place& place) {
  if (place.line <= 0) return "";
  return absl::StrFormat("%d:%d ", place.line, place.column);
}

void AddFinding(const Finding& finding, std::string* out) {
  std::string head = absl::StrFormat("%-8s", SeverityName(finding.severity));
  *out += Wrap(Where(finding.place) + finding.message, head, kIndent);
  if (!finding.change.empty()) {
    std::string saving;
    if (finding.saving_bytes && *finding.saving_bytes > 0) {
      saving = absl::StrCat("  (saves ", ShowGib(*finding.saving_bytes), ")");
    }
    *out += Wrap(finding.change + saving, absl::StrCat(kIndent, "change: "),
                 absl::StrCat(kIndent, "  "));
  }
  for (const std::string& line : finding.evidence) {
    absl::StrAppend(out, kIndent, "seen: ", line, "\n");
  }
  if (!finding.source.empty()) {
    absl::StrAppend(out, kIndent, "[", finding.rule, "; ", finding.source,
                    "]\n");
  }
}

void AddFindings(const Verdict& verdict, std::string* out) {
  bool any = false;
  for (const Finding& finding : verdict.findings) {
    if (finding.severity == Severity::kNote && finding.evidence.empty()) {
      continue;
    }
    absl::StrAppend(out, "\n");
    AddFinding(finding, out);
    any = true;
  }
  bool heading = false;
  for (const Finding& finding : verdict.findings) {
    if (finding.severity != Severity::kNote || !finding.evidence.empty()) {
      continue;
    }
    if (!heading) absl::StrAppend(out, any ? "\n" : "", "Notes\n");
    heading = true;
    std::string text = Where(finding.place) + finding.message;
    if (!finding.change.empty()) {
      absl::StrAppend(&text, " -> ", finding.change);
    }
    *out += Wrap(text, "  ", "    ");
  }
}

void AddSizes(const ConfigReport& config, std::string* out) {
  if (config.sizes.empty()) return;
  absl::StrAppend(out, "\nSettings in bytes\n");
  for (const SizeRow& row : config.sizes) {
    absl::StrAppend(
        out, absl::StrFormat("  %-36s %13d  %10s  %s\n", row.key, row.elements,
                             ShowGib(row.bytes), row.origin));
  }
}

std::string Cell(const std::optional<int64_t>& bytes) {
  return bytes ? ShowGib(*bytes) : "-";
}

void AddComparison(const Verdict& verdict, std::string* out) {
  if (verdict.rows.empty()) return;
  int width = 48;
  for (const ComparedRow& row : verdict.rows) {
    width = std::max(width, static_cast<int>(row.name.size()));
  }
  absl::StrAppend(
      out, "\nExpected against measured, one GPU\n",
      absl::StrFormat("  %-10s  %-*s %10s %10s %11s\n", "phase", width, "what",
                      "expected", "measured", "difference"));
  for (const ComparedRow& row : verdict.rows) {
    std::string difference = "-";
    if (row.expected && row.measured) {
      int64_t bytes = *row.measured - *row.expected;
      difference = absl::StrCat(bytes > 0 ? "+" : "", ShowGib(bytes));
    }
    bool phase = row.phase != Phase::kUnknown;
    absl::StrAppend(out, absl::StrFormat("  %-10s  %-*s %10s %10s %11s\n",
                                         phase ? PhaseName(row.phase) : "",
                                         width, row.name, Cell(row.expected),
                                         Cell(row.measured), difference));
    for (const std::string& line : row.evidence) {
      absl::StrAppend(out, "              ", line, "\n");
    }
  }
}

void AddExpected(const ExpectedMemory& expected, std::string* out) {
  absl::StrAppend(
      out,
      absl::StrFormat("\nExpected memory, one GPU (P = %d parameters, n = %d "
                      "of this rank, S %s %d)\n",
                      expected.params, expected.shard_elements,
                      expected.sub_group_at_least ? ">=" : "=",
                      expected.sub_group_elements));
  for (const ExpectedRow& row : expected.rows) {
    if (row.bytes == 0) continue;
    absl::StrAppend(out, absl::StrFormat("  %-10s  %-9s %-38s %10s  %-22s %s\n",
                                         PhaseName(row.phase),
                                         row.where != Where::kDevice ? "host"
                                         : row.persistent            ? "stays"
                                                          : "transient",
                                         row.name, ShowGib(row.bytes),
                                         row.formula, row.code));
  }
  absl::StrAppend(out, "  after load ", ShowGib(expected.load_live),
                  "; initialize peak ", ShowGib(expected.initialize_peak),
                  ", then ", ShowGib(expected.initialize_steady),
                  "; training at most ", ShowGib(expected.training_peak),
                  "; step peak ", ShowGib(expected.step_peak), ", then ",
                  ShowGib(expected.step_steady), "\n");
  if (expected.pinned_steady + expected.host_steady > 0) {
    absl::StrAppend(out, "  on the host after the first step: ",
                    ShowGib(expected.pinned_steady), " pinned, ",
                    ShowGib(expected.host_steady), " pageable\n");
  }
  const DeepSpeedEstimate& estimate = expected.estimate;
  if (estimate.no_offload > 0) {
    absl::StrAppend(
        out, "  DeepSpeed's own estimator: ", ShowGib(estimate.no_offload),
        " (optimizer offloaded: ", ShowGib(estimate.optimizer_offload), ")",
        estimate.largest_layer_known ? "" : ", without its largest-layer term",
        "\n");
  }
  for (const std::string& note : expected.notes) {
    absl::StrAppend(out, "  note: ", note, "\n");
  }
}

}  // namespace

std::string RenderText(const RenderInputs& inputs) {
  const Settings& settings = inputs.config.settings;
  std::string out =
      absl::StrCat(inputs.verdict.headline, "\n", inputs.file,
                   inputs.trace.empty() ? "" : " against ", inputs.trace,
                   ", DeepSpeed ", FormatVersion(inputs.options.version));
  if (inputs.options.world_size > 0) {
    absl::StrAppend(&out, ", ", inputs.options.world_size,
                    inputs.options.world_size == 1 ? " GPU" : " GPUs");
  }
  if (inputs.config.readable) {
    absl::StrAppend(&out, ", ZeRO stage ", settings.stage);
  }
  std::string launcher = LauncherName(inputs.config.launcher);
  if (!launcher.empty()) {
    absl::StrAppend(&out, ", read as a config of ", launcher);
  }
  absl::StrAppend(&out, "\n");
  AddFindings(inputs.verdict, &out);
  AddComparison(inputs.verdict, &out);
  AddSizes(inputs.config, &out);
  if (inputs.expected != nullptr) AddExpected(*inputs.expected, &out);
  return out;
}

}  // namespace dstrace::deepspeed
