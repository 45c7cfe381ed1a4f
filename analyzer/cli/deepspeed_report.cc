// SPDX-License-Identifier: Apache-2.0
#include "analyzer/cli/deepspeed_report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "analyzer/deepspeed/render.h"
#include "analyzer/log/trace_reader.h"
#include "analyzer/symbolize/frames.h"

namespace dstrace::cli {
namespace {

absl::Status Named(const std::string& file, const absl::Status& status) {
  const std::string message(status.message());
  if (message.find(file) != std::string::npos) return status;
  return absl::Status(status.code(), absl::StrCat(file, ": ", message));
}

void TakeFacts(const deepspeed::TraceMeasure& measure,
               DeepspeedOptions* options) {
  if (!options->world_size_given && measure.world_size.value_or(0) > 0) {
    options->check.world_size = *measure.world_size;
  }
  if (!options->torch_version_given && measure.torch_version) {
    options->check.torch_version = *measure.torch_version;
  }
  // Nobody named the release: the trace shows what it did.
  if (!options->deepspeed_version_given) {
    options->check.states_at_first_step = measure.states_at_first_step;
  }
}

// One rank's part of an output head that was tied after its construction.
int64_t TiedHeadBytes(const deepspeed::ExpectedMemory& expected) {
  for (const deepspeed::ExpectedRow& row : expected.rows) {
    if (row.tag == deepspeed::Tag::kTiedHead) return row.bytes;
  }
  return 0;
}

}  // namespace

absl::StatusOr<DeepspeedResult> CompareTrace(const std::string& trace,
                                             const DeepspeedOptions& given,
                                             std::optional<int> device) {
  auto reader = log::TraceReader::Open(trace);
  if (!reader.ok()) return Named(trace, reader.status());
  auto measure = deepspeed::MeasureTrace(
      **reader, symbolize::Describe((*reader)->facts().stacks), device);
  if (!measure.ok()) return Named(trace, measure.status());
  DeepspeedOptions options = given;
  TakeFacts(*measure, &options);
  auto job = ReadCase(options);
  if (!job.ok()) return job.status();
  const auto expected = job->expected.value_or(deepspeed::ExpectedMemory{});
  const int64_t head = TiedHeadBytes(expected);
  if (head > 0) deepspeed::TagTiedHead(head, &measure->measured);
  auto verdict =
      deepspeed::Judge(job->report, job->inputs, expected, measure->measured);
  return DeepspeedResult{*std::move(job), *std::move(measure),
                         std::move(verdict)};
}

std::string RenderComparison(const std::string& trace,
                             const DeepspeedOptions& options,
                             const DeepspeedResult& result, bool json) {
  std::string what = trace;
  if (result.measure.rank) {
    absl::StrAppend(&what, " (rank ", *result.measure.rank, ", GPU ",
                    result.measure.device, ")");
  }
  deepspeed::RenderInputs render{
      options.config,
      result.job.options,
      result.job.report,
      result.verdict,
      result.job.expected ? &*result.job.expected : nullptr,
      what};
  return json ? deepspeed::RenderJson(render) : deepspeed::RenderText(render);
}

}  // namespace dstrace::cli
