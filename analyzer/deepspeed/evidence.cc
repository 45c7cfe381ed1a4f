// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/evidence.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace dstrace::deepspeed {
namespace {

const char* KindName(RowKind kind) {
  switch (kind) {
    case RowKind::kLive:
      return "alive";
    case RowKind::kPeak:
      return "at the peak";
    case RowKind::kCached:
      return "cached";
    case RowKind::kPinned:
      return "pinned";
    case RowKind::kDevice:
      break;
  }
  return "outside torch";
}

// "all_gather" of "all_gather (partition_parameters.py:1130)".
std::string FunctionOf(const std::string& frame) {
  return frame.substr(0, frame.find_first_of(" ("));
}

// Frames that only pass a call on.
bool IsWrapper(const std::string& function) {
  for (const char* name :
       {"wrapped_fn", "log_wrapper", "wrapper", "_call_impl",
        "_wrapped_call_impl", "_fn", "decorate_context", "<module>"}) {
    if (function == name) return true;
  }
  return function.empty();
}

}  // namespace

Tag TagOf(const MeasuredRow& row) {
  return row.tag ? *row.tag : ClassifyStack(row.stack);
}

Phase PhaseOf(const MeasuredRow& row) {
  return row.phase != Phase::kUnknown ? row.phase : PhaseOfStack(row.stack);
}

std::vector<MeasuredRow> BeyondStanding(const Measured& measured, Phase phase,
                                        RowKind kind) {
  std::map<std::vector<std::string>, int64_t> standing;
  for (const MeasuredRow& row : measured.rows) {
    if (row.kind == RowKind::kLive && PhaseOf(row) == Phase::kInitialize) {
      standing[row.stack] += row.bytes;
    }
  }
  std::vector<MeasuredRow> rows;
  for (const MeasuredRow& row : measured.rows) {
    if (row.kind != kind || PhaseOf(row) != phase) continue;
    rows.push_back(row);
    auto stood = standing.find(row.stack);
    if (stood == standing.end()) continue;
    int64_t less = std::min(stood->second, rows.back().bytes);
    rows.back().bytes -= less;
    stood->second -= less;
  }
  return rows;
}

std::vector<TagGroup> GroupRows(const Measured& measured, Phase phase,
                                RowKind kind) {
  return GroupRows(measured.rows, phase, kind);
}

std::vector<TagGroup> GroupRows(const std::vector<MeasuredRow>& rows,
                                Phase phase, RowKind kind) {
  std::vector<TagGroup> groups;
  for (const MeasuredRow& row : rows) {
    if (row.kind != kind || row.bytes < 0 || PhaseOf(row) != phase) continue;
    Tag tag = TagOf(row);
    auto group =
        std::find_if(groups.begin(), groups.end(),
                     [tag](const TagGroup& one) { return one.tag == tag; });
    if (group == groups.end()) {
      groups.push_back({tag, 0, {}});
      group = groups.end() - 1;
    }
    group->bytes += row.bytes;
    group->rows.push_back(&row);
  }
  for (TagGroup& group : groups) {
    std::stable_sort(group.rows.begin(), group.rows.end(),
                     [](const MeasuredRow* a, const MeasuredRow* b) {
                       return a->bytes > b->bytes;
                     });
  }
  std::stable_sort(
      groups.begin(), groups.end(),
      [](const TagGroup& a, const TagGroup& b) { return a.bytes > b.bytes; });
  return groups;
}

const TagGroup* FindGroup(const std::vector<TagGroup>& groups, Tag tag) {
  for (const TagGroup& group : groups) {
    if (group.tag == tag) return &group;
  }
  return nullptr;
}

std::string ShowGib(int64_t bytes) {
  constexpr double kMib = 1024.0 * 1024;
  double mib = static_cast<double>(bytes) / kMib;
  if (std::abs(mib) >= 1024) return absl::StrFormat("%.2f GiB", mib / 1024);
  return absl::StrFormat("%.0f MiB", mib);
}

std::string ShowStack(const std::vector<std::string>& frames) {
  constexpr size_t kMostFrames = 6;
  std::vector<std::string> shown;
  for (const std::string& frame : frames) {
    std::string function = FunctionOf(frame);
    if (IsWrapper(function)) continue;
    if (!shown.empty() && shown.back() == function) continue;
    shown.push_back(function);
  }
  std::string text;
  for (size_t i = 0; i < shown.size() && i < kMostFrames; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : " < ", shown[i]);
  }
  return shown.size() > kMostFrames
             ? absl::StrCat(text, " < ... < ", shown.back())
             : text;
}

std::vector<std::string> ShowRows(const TagGroup& group, size_t most) {
  // One line per distinct stack.
  std::vector<std::pair<std::string, int64_t>> lines;
  for (const MeasuredRow* row : group.rows) {
    std::string stack = ShowStack(row->stack);
    auto same = std::find_if(lines.begin(), lines.end(), [&](const auto& one) {
      return one.first == stack;
    });
    if (same == lines.end()) {
      lines.emplace_back(stack, row->bytes);
    } else {
      same->second += row->bytes;
    }
  }
  std::stable_sort(
      lines.begin(), lines.end(),
      [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> evidence;
  // Shown in MiB: what rounds to none is no evidence beside a larger line.
  constexpr int64_t kTooSmall = 1 << 19;
  for (size_t i = 0; i < lines.size() && i < most; ++i) {
    if (i > 0 && lines[i].second < kTooSmall) break;
    evidence.push_back(
        absl::StrFormat("%s %s, %s: %s", ShowGib(lines[i].second),
                        KindName(group.rows.front()->kind), TagName(group.tag),
                        lines[i].first.empty() ? "no stack" : lines[i].first));
  }
  return evidence;
}

}  // namespace dstrace::deepspeed
