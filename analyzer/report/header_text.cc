// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/header_text.h"

#include <algorithm>
#include <cstring>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analyzer/report/cupti_text.h"
#include "analyzer/report/format.h"

namespace dstrace::report {
namespace {

using model::EndKind;
using model::Process;
using model::Run;

std::string CommandLine(const Process& process) {
  if (!process.command.empty()) return absl::StrJoin(process.command, " ");
  return process.executable.empty() ? "(command line not recorded)"
                                    : process.executable;
}

std::string Property(const Process& process, const std::string& name) {
  const auto it = process.properties.find(name);
  return it == process.properties.end() ? "" : it->second;
}

std::string ProcessLine(const Process& process) {
  std::string out = absl::StrCat("pid ", process.pid);
  if (!process.host.empty()) absl::StrAppend(&out, " on ", process.host);
  if (process.rank.has_value()) absl::StrAppend(&out, ", rank ", *process.rank);
  if (process.rank.has_value() && process.world_size.has_value()) {
    absl::StrAppend(&out, " of ", *process.world_size);
  }
  for (const auto& [name, property] :
       {std::pair{"torch ", "torch.version"},
        std::pair{"CUDA ", "cuda.runtime_version"},
        std::pair{"driver CUDA ", "cuda.driver_version"},
        std::pair{"NCCL ", "nccl.version"},
        std::pair{"Python ", "python.version"}}) {
    const std::string value = Property(process, property);
    if (!value.empty()) absl::StrAppend(&out, ", ", name, value);
  }
  return out;
}

std::string GpuLine(const model::Gpu& gpu) {
  std::string out = absl::StrCat("GPU ", gpu.index, ": ",
                                 gpu.name.empty() ? "unnamed" : gpu.name);
  if (gpu.total_bytes > 0) absl::StrAppend(&out, ", ", Bytes(gpu.total_bytes));
  if (!gpu.uuid.empty()) absl::StrAppend(&out, ", ", gpu.uuid);
  return out;
}

std::string LossText(const Run& run) {
  std::vector<std::string> parts;
  for (const model::Loss& loss : run.losses) {
    if (loss.count == 0) continue;
    std::string part = absl::StrCat(Count(loss.count), " x ", loss.cause);
    if (!loss.detail.empty()) absl::StrAppend(&part, " (", loss.detail, ")");
    parts.push_back(std::move(part));
  }
  return parts.empty() ? ""
                       : absl::StrCat("LOST: ", absl::StrJoin(parts, ", "));
}

// Empty where every free was of something known.
std::string UnmatchedFrees(const Run& run) {
  std::vector<std::string> kinds;
  for (const auto& [count, kind] :
       {std::pair{run.unmatched_tensor_frees, " tensor"},
        std::pair{run.unmatched_device_frees, " device"}}) {
    if (count > 0) kinds.push_back(absl::StrCat(Count(count), kind));
  }
  return kinds.empty() ? ""
                       : absl::StrCat(absl::StrJoin(kinds, " and "),
                                      " frees were of memory not seen before");
}

std::string HistoryText(const Run& run) {
  if (run.log_limit_bytes == 0) {
    return run.tracer_bytes == 0
               ? ""
               : absl::StrCat("the recorder itself had ",
                              Bytes(run.tracer_bytes), " of memory mapped");
  }
  std::string out = absl::StrCat("limit ", Bytes(run.log_limit_bytes));
  if (run.file_bytes > run.log_limit_bytes) {
    absl::StrAppend(&out, " exceeded by ",
                    Bytes(run.file_bytes - run.log_limit_bytes),
                    " for what was live, open and defined");
  }
  if (run.tracer_bytes > 0) {
    absl::StrAppend(&out, "; the recorder itself had ", Bytes(run.tracer_bytes),
                    " of memory mapped");
  }
  if (run.history_start_ns == 0)
    return absl::StrCat("history complete (", out, ")");
  const std::time_t seconds = static_cast<std::time_t>(
      (run.process.start_real_ns + run.history_start_ns) / 1'000'000'000);
  std::tm utc{};
  char clock[16] = {};
  if (gmtime_r(&seconds, &utc) != nullptr) {
    std::strftime(clock, sizeof clock, "%H:%M:%S", &utc);
  }
  return absl::StrCat("history complete since ", clock, " UTC, ",
                      Duration(run.history_start_ns), " after the start (", out,
                      "); what was live then is known with its stacks");
}

bool RanOutOfMemory(const Run& run) {
  return std::any_of(
      run.failures.begin(), run.failures.end(),
      [](const model::Failure& failure) { return failure.api == "torch"; });
}

}  // namespace

std::string EndText(const Process& process) {
  const int status = process.end_status;
  switch (process.end) {
    case EndKind::kExit:
      return absl::StrCat("exit status ", status);
    case EndKind::kFastExit:
      return absl::StrCat("_exit(", status, ")");
    case EndKind::kSignal: {
      const char* name = strsignal(status);
      return absl::StrCat("signal ", status,
                          name != nullptr ? absl::StrCat(" (", name, ")") : "");
    }
    case EndKind::kExec:
      return absl::StrCat("replaced itself by exec",
                          process.properties.contains("end.exec") ? " of " : "",
                          Property(process, "end.exec"));
    case EndKind::kAbort:
      return "abort()";
    case EndKind::kStillRunning:
      return "still running when this was read";
    case EndKind::kKilled:
      break;
  }
  return "killed or crashed (no end was recorded)";
}

std::string HeaderText(const Run& run, size_t width, const Style& style) {
  const Process& process = run.process;
  std::string out;
  const auto line = [&](const std::string& text) {
    absl::StrAppend(&out, text, "\n");
  };
  line(style.Bold(
      Fit(absl::StrCat("dstrace report: ", CommandLine(process)), width)));
  line(Wrap(ProcessLine(process), width, "  "));
  for (const model::Gpu& gpu : process.gpus) line(Fit(GpuLine(gpu), width));
  const std::string losses = LossText(run);
  const std::string end = absl::StrCat(
      EndText(process), RanOutOfMemory(run) ? ", out of GPU memory" : "");
  line(Wrap(
      absl::StrCat("ran ", Duration(process.duration_ns), ", ",
                   Count(run.event_count), " events in ", Bytes(run.file_bytes),
                   ", ", losses.empty() ? "nothing lost" : "with losses",
                   "; ended: ", end),
      width, "  "));
  if (!losses.empty()) line(style.Red(Wrap(losses, width, "  ")));
  if (const std::string history = HistoryText(run); !history.empty()) {
    line(Wrap(history, width, "  "));
  }
  // With recycled history the hooks' side of the count is not whole.
  if (const std::string cupti = CuptiText(run.cupti);
      !cupti.empty() && run.history_start_ns == 0) {
    const std::string text = Wrap(cupti, width, "  ");
    line(CuptiAgrees(run.cupti) ? text : style.Red(text));
  }
  if (process.stacks_mode == "none")
    line("stacks were switched off (DSTRACE_STACKS=none)");
  if (const auto native = process.properties.find("stacks.native");
      native != process.properties.end()) {
    line(Wrap(absl::StrCat("native stacks: ", native->second), width, "  "));
  }
  if (const std::string frees = UnmatchedFrees(run); !frees.empty()) {
    line(style.Dim(Wrap(absl::StrCat("note: ", frees), width, "  ")));
  }
  for (const std::string& note : run.notes) {
    line(style.Dim(Wrap(absl::StrCat("note: ", note), width, "  ")));
  }
  return out;
}

}  // namespace dstrace::report
