// SPDX-License-Identifier: Apache-2.0
#include "analyzer/cli/report.h"

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analyzer/attribution/rules.h"
#include "analyzer/cli/deepspeed_report.h"
#include "analyzer/cli/output.h"
#include "analyzer/log/trace_reader.h"
#include "analyzer/model/build_run.h"
#include "analyzer/model/ledger_series.h"
#include "analyzer/report/folded.h"
#include "analyzer/report/json.h"
#include "analyzer/report/svg.h"
#include "analyzer/report/text.h"
#include "analyzer/symbolize/debug_files.h"

namespace dstrace::cli {
namespace {

constexpr size_t kWidth = 100;

// Errors of the layers below name the file or not: the user must see it.
absl::Status Named(const std::string& file, const absl::Status& status) {
  const std::string message(status.message());
  if (message.find(file) != std::string::npos) return status;
  return absl::Status(status.code(), absl::StrCat(file, ": ", message));
}

absl::StatusOr<model::Run> ReadRun(const std::string& file,
                                   const Options& options) {
  auto reader = log::TraceReader::Open(file);
  if (!reader.ok()) return Named(file, reader.status());
  model::BuildOptions build;
  build.at = options.instant;
  auto run = model::BuildRun(**reader, build);
  if (!run.ok()) return Named(file, run.status());
  return run;
}

absl::StatusOr<std::string> Ledgers(const std::string& file,
                                    const Options& options) {
  auto reader = log::TraceReader::Open(file);
  if (!reader.ok()) return Named(file, reader.status());
  const uint64_t start = (*reader)->facts().process.start_monotonic_ns;
  std::vector<uint64_t> times;
  for (const Options::Instant& instant : options.instants) {
    if (instant.monotonic && instant.time_ns < start) continue;  // no trace yet
    times.push_back(instant.monotonic ? instant.time_ns - start
                                      : instant.time_ns);
  }
  if (times.empty() && !options.instants.empty()) return std::string();
  const auto series = model::LedgerSeries(**reader, std::move(times));
  if (!series.ok()) return Named(file, series.status());
  std::string lines;
  for (const model::LedgerPoint& point : *series) {
    if (options.device.has_value() && *options.device != point.device) continue;
    absl::StrAppend(&lines, report::LedgerLine(file, start, point));
  }
  return lines;
}

absl::StatusOr<attribution::RuleSet> ReadRules(const Options& options) {
  attribution::RuleSet rules = attribution::RuleSet::BuiltIn();
  for (const std::string& file : options.rules) {
    auto more = attribution::RuleSet::Load(file);
    if (!more.ok()) return more.status();
    rules.Prepend(*more);
  }
  return rules;
}

bool WantsColour(const Options& options) {
  if (options.colour != Colour::kAuto) {
    return options.colour == Colour::kAlways;
  }
  return options.output.empty() && OutputIsTerminal() &&
         std::getenv("NO_COLOR") == nullptr;
}

std::string ProcessName(const model::Run& run) {
  return run.process.rank.has_value()
             ? absl::StrCat("rank ", *run.process.rank)
             : absl::StrCat("process ", run.process.pid);
}

// Collects the reports of the files one after the other; only what the end
// needs is kept.
class Renderer {
 public:
  Renderer(const Options& options, const attribution::RuleSet& rules)
      : options_(options), rules_(rules) {}

  void Add(const std::string& file, const model::Run& run) {
    report::View view(run, rules_,
                      symbolize::DescribeWithDebugFiles(run.stacks));
    switch (options_.format) {
      case Format::kText:
        texts_.push_back(Text(view));
        ranks_.push_back(report::RankLine{file, &run});
        return;
      case Format::kJson:
        texts_.push_back(
            report::Json(view, {options_.at, options_.top.value_or(0),
                                options_.device, options_.stacks}));
        return;
      case Format::kFolded:
      case Format::kSvg:
      case Format::kLedgers:
        break;
    }
    report::FoldedOptions folded{options_.at, options_.device,
                                 options_.reserved, ""};
    if (options_.files.size() > 1) folded.root = ProcessName(run);
    for (auto& stack : report::FoldedStacks(view, folded)) {
      stacks_.push_back(std::move(stack));
    }
    if (title_.empty()) title_ = absl::StrJoin(run.process.command, " ");
  }

  std::string Finish() {
    switch (options_.format) {
      case Format::kText:
        if (ranks_.size() > 1) {
          texts_.push_back(report::RankTable(ranks_, Width()));
        }
        return absl::StrJoin(texts_, "\n");
      case Format::kJson:
        return texts_.size() == 1 ? texts_[0] : report::JsonArray(texts_);
      case Format::kFolded:
        return report::Folded(stacks_);
      case Format::kSvg:
      case Format::kLedgers:
        break;
    }
    return report::Svg(
        stacks_,
        absl::StrCat(options_.reserved ? "reserved by torch" : "GPU memory",
                     ", ", options_.at, ": ", title_));
  }

 private:
  size_t Width() const {
    return options_.output.empty() ? OutputWidth(kWidth) : kWidth;
  }

  std::string Text(report::View& view) const {
    report::TextOptions text;
    text.at = options_.at;
    text.top = options_.top.value_or(text.top);
    text.device = options_.device;
    text.stacks = options_.stacks;
    text.colour = WantsColour(options_);
    text.width = Width();
    return report::Text(view, text);
  }

  const Options& options_;
  const attribution::RuleSet& rules_;
  std::vector<std::string> texts_;
  std::vector<report::RankLine> ranks_;
  std::vector<report::FoldedStack> stacks_;
  std::string title_;
};

absl::StatusOr<std::string> RenderDeepspeed(const Options& options) {
  const bool json = options.format == Format::kJson;
  std::vector<std::string> texts;
  for (const std::string& file : options.files) {
    const auto result = CompareTrace(file, options.deepspeed, options.device);
    if (!result.ok()) return result.status();
    texts.push_back(RenderComparison(file, options.deepspeed, *result, json));
  }
  if (!json) return absl::StrJoin(texts, "\n");
  return texts.size() == 1 ? texts[0] : report::JsonArray(texts);
}

}  // namespace

absl::StatusOr<std::string> Render(const Options& options) {
  if (!options.deepspeed.config.empty()) return RenderDeepspeed(options);
  if (options.format == Format::kLedgers) {
    std::string lines;
    for (const std::string& file : options.files) {
      const auto more = Ledgers(file, options);
      if (!more.ok()) return more.status();
      absl::StrAppend(&lines, *more);
    }
    return lines;
  }
  const auto rules = ReadRules(options);
  if (!rules.ok()) return rules.status();
  Renderer renderer(options, *rules);
  std::vector<std::unique_ptr<model::Run>> runs;  // the table looks at them
  for (const std::string& file : options.files) {
    auto run = ReadRun(file, options);
    if (!run.ok()) return run.status();
    runs.push_back(std::make_unique<model::Run>(*std::move(run)));
    renderer.Add(file, *runs.back());
  }
  return renderer.Finish();
}

}  // namespace dstrace::cli
