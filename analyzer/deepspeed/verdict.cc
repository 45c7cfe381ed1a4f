// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/verdict.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/deepspeed/causes.h"
#include "analyzer/deepspeed/evidence.h"

namespace dstrace::deepspeed {
namespace {

constexpr Phase kPhases[] = {Phase::kLoad, Phase::kInitialize, Phase::kForward,
                             Phase::kBackward, Phase::kStep};

// Less than this is what torch pins for itself, such as DataLoader's batches.
constexpr int64_t kSomePinned = int64_t{64} << 20;

class Comparison {
 public:
  Comparison(const ExpectedMemory& expected, const Measured& measured)
      : expected_(expected), measured_(measured) {}

  std::vector<ComparedRow> Run() {
    for (Phase phase : kPhases) {
      // What the run never reached is not compared.
      if (!measured_.phases.empty() && measured_.Find(phase) == nullptr) {
        continue;
      }
      Tags(phase, true);
      Tags(phase, false);
      Totals(phase);
    }
    AddOutside("NCCL communicators", measured_.nccl_bytes);
    AddOutside("CUDA context and modules", measured_.context_bytes);
    return std::move(rows_);
  }

 private:
  static bool Differs(const ComparedRow& row) {
    if (!row.expected || !row.measured) return false;
    int64_t difference = std::llabs(*row.measured - *row.expected);
    return difference * 20 > std::max<int64_t>(*row.expected, 1);
  }

  // One row a tag: persistent parts against what is alive at the end of the
  // phase, transient ones against what is there at its peak.
  void Tags(Phase phase, bool persistent) {
    std::vector<TagGroup> groups = GroupRows(
        measured_, phase, persistent ? RowKind::kLive : RowKind::kPeak);
    std::vector<Tag> done;
    for (const ExpectedRow& one : expected_.rows) {
      if (one.where != Where::kDevice || one.phase != phase ||
          one.persistent != persistent) {
        continue;
      }
      if (std::find(done.begin(), done.end(), one.tag) != done.end()) continue;
      done.push_back(one.tag);
      AddTag(phase, one.tag, persistent, FindGroup(groups, one.tag));
    }
    for (const TagGroup& group : groups) {
      bool known = std::find(done.begin(), done.end(), group.tag) != done.end();
      constexpr int64_t kTooSmall = 1 << 20;
      if (known || !persistent || group.bytes < kTooSmall) continue;
      ComparedRow row{phase, TagName(group.tag), std::nullopt, group.bytes, {}};
      row.evidence = ShowRows(group, 1);
      rows_.push_back(std::move(row));
    }
  }

  void AddTag(Phase phase, Tag tag, bool persistent, const TagGroup* group) {
    int64_t bytes = 0;
    bool upper_bound = false;
    for (const ExpectedRow& one : expected_.rows) {
      if (one.where != Where::kDevice || one.phase != phase ||
          one.persistent != persistent || one.tag != tag) {
        continue;
      }
      bytes += one.bytes;
      upper_bound = upper_bound || one.upper_bound;
    }
    if (bytes == 0 && group == nullptr) return;
    ComparedRow row{phase,
                    absl::StrCat(TagName(tag), persistent ? "" : " (transient)",
                                 upper_bound ? ", at most" : ""),
                    bytes,
                    std::nullopt,
                    {}};
    if (group != nullptr) {
      row.measured = group->bytes;
      bool over = group->bytes > bytes;
      if (Differs(row) && (over || !upper_bound)) {
        row.evidence = ShowRows(*group);
      }
    }
    rows_.push_back(std::move(row));
  }

  void Total(Phase phase, const char* name, int64_t expected,
             const std::optional<int64_t>& measured) {
    std::optional<int64_t> known;
    if (expected > 0) known = expected;
    if (!known && !measured) return;
    rows_.push_back({phase, name, known, measured, {}});
  }

  void Totals(Phase phase) {
    static const MeasuredPhase kNothing;
    const MeasuredPhase* found = measured_.Find(phase);
    const MeasuredPhase& now = found != nullptr ? *found : kNothing;
    if (phase == Phase::kLoad) {
      Total(phase, "all tensors, peak of load, at most", expected_.load_peak,
            now.peak);
      Total(phase, "all tensors, end of load", expected_.load_live, now.live);
    } else if (phase == Phase::kInitialize) {
      Total(phase, "all tensors, peak", expected_.initialize_peak, now.peak);
      Total(phase, "all tensors, end of initialize",
            expected_.initialize_steady, now.live);
    } else if (phase == Phase::kStep) {
      Total(phase, "all tensors, peak without activations", expected_.step_peak,
            now.peak);
    }
    if (now.reserved && now.live) {
      rows_.push_back({phase,
                       "torch's cache (reserved, no tensor in it)",
                       std::nullopt,
                       *now.reserved - *now.live,
                       {}});
    }
    if (now.device_used) {
      rows_.push_back(
          {phase, "device memory used", std::nullopt, now.device_used, {}});
    }
    Pinned(phase, now);
  }

  // Torch rounds pinned blocks up and never gives them back, so that what is
  // expected is the least that must be there.
  void Pinned(Phase phase, const MeasuredPhase& now) {
    if (phase != Phase::kLoad && phase != Phase::kInitialize) return;
    int64_t expected =
        phase == Phase::kLoad ? expected_.pinned_load : expected_.pinned_steady;
    if (expected == 0 && now.host_pinned.value_or(0) < kSomePinned) return;
    ComparedRow row{
        phase, "pinned host memory, at least", expected, now.host_pinned, {}};
    std::vector<TagGroup> groups =
        GroupRows(measured_, phase, RowKind::kPinned);
    for (const TagGroup& group : groups) {
      for (std::string& line : ShowRows(group, 1)) {
        row.evidence.push_back(std::move(line));
      }
    }
    rows_.push_back(std::move(row));
  }

  void AddOutside(const char* name, const std::optional<int64_t>& bytes) {
    if (!bytes) return;
    rows_.push_back({Phase::kUnknown, name, std::nullopt, bytes, {}});
  }

  const ExpectedMemory& expected_;
  const Measured& measured_;
  std::vector<ComparedRow> rows_;
};

// The first sentence, with its line.
std::string Short(const Finding& finding) {
  size_t end = finding.message.find(". ");
  std::string sentence = finding.message.substr(0, end);
  if (!sentence.empty() && sentence.back() == '.') sentence.pop_back();
  if (finding.place.line <= 0) return sentence;
  return absl::StrFormat("line %d: %s", finding.place.line, sentence);
}

// Validity, reasons and headline from the findings, which are ranked.
void Conclude(Verdict* verdict) {
  int errors = CountFindings(verdict->findings, Severity::kError);
  int warnings = CountFindings(verdict->findings, Severity::kWarning);
  verdict->validity = errors > 0     ? Validity::kNotValid
                      : warnings > 0 ? Validity::kValidBut
                                     : Validity::kValid;
  Severity decisive = errors > 0 ? Severity::kError : Severity::kWarning;
  for (const Finding& finding : verdict->findings) {
    if (finding.severity == decisive) {
      verdict->reasons.push_back(Short(finding));
    }
  }
  verdict->headline = ValidityName(verdict->validity);
  if (verdict->reasons.empty()) return;
  absl::StrAppend(&verdict->headline, ": ", verdict->reasons[0]);
  size_t more = verdict->reasons.size() - 1;
  if (more > 0) {
    absl::StrAppend(&verdict->headline, " (and ", more, " more ",
                    errors > 0 ? "error" : "warning", more > 1 ? "s)" : ")");
  }
}

}  // namespace

const char* ValidityName(Validity validity) {
  switch (validity) {
    case Validity::kNotValid:
      return "not valid";
    case Validity::kValidBut:
      return "valid, but";
    case Validity::kValid:
      break;
  }
  return "valid";
}

Verdict JudgeConfig(const ConfigReport& config) {
  Verdict verdict;
  verdict.findings = config.findings;
  Conclude(&verdict);
  return verdict;
}

Verdict Judge(const ConfigReport& config, const MemoryInputs& inputs,
              const ExpectedMemory& expected, const Measured& measured) {
  Verdict verdict;
  CauseInputs in{config, inputs, expected, measured};
  FindOom(in, &verdict.findings);
  FindLoadCache(in, &verdict.findings);
  FindLoadLive(in, &verdict.findings);
  FindSubGroup(in, &verdict.findings);
  FindCommunicators(in, &verdict.findings);
  SortFindings(&verdict.findings);
  // What the trace shows explains memory and comes first; the config's own
  // findings follow in their order.
  verdict.findings.insert(verdict.findings.end(), config.findings.begin(),
                          config.findings.end());
  verdict.rows = Comparison(expected, measured).Run();
  Conclude(&verdict);
  return verdict;
}

}  // namespace dstrace::deepspeed
