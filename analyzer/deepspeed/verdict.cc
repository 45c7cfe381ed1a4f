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
  // phase, transient ones against what is there at its peak; in training both
  // without what stands since initialize.
  void Tags(Phase phase, bool persistent) {
    RowKind kind = persistent ? RowKind::kLive : RowKind::kPeak;
    bool training = phase != Phase::kLoad && phase != Phase::kInitialize;
    std::vector<MeasuredRow> beyond;
    if (training) beyond = BeyondStanding(measured_, phase, kind);
    std::vector<TagGroup> groups =
        GroupRows(training ? beyond : measured_.rows, phase, kind);
    std::vector<Tag> done;
    for (const ExpectedRow& one : expected_.rows) {
      if (one.where != Where::kDevice || one.phase != phase ||
          one.persistent != persistent) {
        continue;
      }
      if (std::find(done.begin(), done.end(), one.tag) != done.end()) continue;
      done.push_back(one.tag);
      AddTag(phase, one.tag, persistent, groups);
    }
    for (const TagGroup& group : groups) {
      bool known = std::find(done.begin(), done.end(), group.tag) != done.end();
      constexpr int64_t kTooSmall = 1 << 20;
      if (known || group.bytes < kTooSmall) continue;
      // At a peak there is also what stays, by the formulas or as just seen.
      if (!persistent && (Stays(group.tag) || Shown(phase, group))) continue;
      ComparedRow row{phase,
                      RowName(group.tag, persistent, ""),
                      std::nullopt,
                      group.bytes,
                      {}};
      row.evidence = ShowRows(group, 1);
      rows_.push_back(std::move(row));
    }
  }

  bool Shown(Phase phase, const TagGroup& group) const {
    return std::any_of(rows_.begin(), rows_.end(), [&](const ComparedRow& row) {
      return row.phase == phase && row.name == TagName(group.tag) &&
             row.measured.value_or(0) >= group.bytes;
    });
  }

  bool Stays(Tag tag) const {
    return std::any_of(expected_.rows.begin(), expected_.rows.end(),
                       [tag](const ExpectedRow& one) {
                         return one.where == Where::kDevice && one.persistent &&
                                one.tag == tag && one.bytes > 0;
                       });
  }

  static std::string RowName(Tag tag, bool persistent, const char* bound) {
    return absl::StrCat(TagName(tag), persistent ? "" : " (transient)", bound);
  }

  void AddTag(Phase phase, Tag tag, bool persistent,
              const std::vector<TagGroup>& groups) {
    const TagGroup* group = FindGroup(groups, tag);
    int64_t bytes = 0;
    bool upper_bound = false;
    bool lower_bound = false;
    for (const ExpectedRow& one : expected_.rows) {
      if (one.where != Where::kDevice || one.phase != phase ||
          one.persistent != persistent || one.tag != tag) {
        continue;
      }
      bytes += one.bytes;
      upper_bound = upper_bound || one.upper_bound;
      lower_bound = lower_bound || one.lower_bound;
    }
    if (bytes == 0 && (group == nullptr || group->bytes == 0)) return;
    bool elsewhere = !persistent && group == nullptr && !groups.empty();
    const char* bound = elsewhere     ? ", not at the peak"
                        : upper_bound ? ", at most"
                        : lower_bound ? ", at least"
                                      : "";
    ComparedRow row{
        phase, RowName(tag, persistent, bound), bytes, std::nullopt, {}};
    if (group != nullptr) {
      row.measured = group->bytes;
      bool over = group->bytes > bytes;
      if (Differs(row) && (over || !upper_bound)) {
        row.evidence = ShowRows(*group);
      }
    }
    rows_.push_back(std::move(row));
  }

  void Total(Phase phase, const char* name, const char* bound, int64_t expected,
             const std::optional<int64_t>& measured) {
    std::optional<int64_t> known;
    if (expected > 0) known = expected;
    if (!known && !measured) return;
    rows_.push_back(
        {phase, absl::StrCat(name, known ? bound : ""), known, measured, {}});
  }

  void Totals(Phase phase) {
    static const MeasuredPhase kNothing;
    const MeasuredPhase* found = measured_.Find(phase);
    const MeasuredPhase& now = found != nullptr ? *found : kNothing;
    // Without the parameters' sizes what is gathered and S are not known.
    bool sized = expected_.sizes_known;
    if (phase == Phase::kLoad) {
      Total(phase, "all tensors, peak of load",
            sized ? ", at most" : ", at least", expected_.load_peak, now.peak);
      Total(phase, "all tensors, end of load", "", expected_.load_live,
            now.live);
    } else if (phase == Phase::kInitialize) {
      Total(phase, "all tensors, peak", sized ? "" : ", at least",
            expected_.initialize_peak, now.peak);
      Total(phase, "all tensors, end of initialize", "",
            expected_.initialize_steady, now.live);
    } else if (phase == Phase::kStep) {
      Total(phase, "all tensors, peak without activations",
            expected_.sub_group_at_least ? ", at least" : "",
            expected_.step_peak, now.peak);
      Total(phase, "all tensors, end of step", "", expected_.step_steady,
            now.end_live);
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
