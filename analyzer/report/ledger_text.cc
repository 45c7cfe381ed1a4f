// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/ledger_text.h"

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "analyzer/report/format.h"
#include "analyzer/report/view.h"

namespace dstrace::report {
namespace {

using model::Ledger;
using model::Snapshot;

constexpr size_t kNameWidth = 40;
constexpr size_t kColumnWidth = 19;
constexpr int64_t kVisible = 52429;           // below it prints as 0.0
constexpr uint64_t kOldSample = 100'000'000;  // ns

class Table {
 public:
  Table(const std::vector<const Snapshot*>& snapshots, const Style& style)
      : snapshots_(snapshots), style_(style) {}

  // A row of bytes; left out when every column is 0 and it is not `always`.
  void Row(const std::string& name, bool always,
           const std::function<int64_t(const Ledger&)>& get) {
    std::string line = PadRight(Fit(name, kNameWidth), kNameWidth);
    bool any = always;
    for (const Snapshot* snapshot : snapshots_) {
      const int64_t value = get(snapshot->ledger);
      any = any || value >= kVisible || value <= -kVisible;
      absl::StrAppend(&line, PadLeft(Mebibytes(value), kColumnWidth));
    }
    if (any) absl::StrAppend(&out_, "  ", line, "\n");
  }

  void Text(const std::string& name,
            const std::function<std::string(const Snapshot&)>& get) {
    std::string line = PadRight(name, kNameWidth);
    for (const Snapshot* snapshot : snapshots_) {
      absl::StrAppend(&line, PadLeft(get(*snapshot), kColumnWidth));
    }
    absl::StrAppend(&out_, "  ", style_.Dim(line), "\n");
  }

  std::string Take() { return std::move(out_); }

 private:
  const std::vector<const Snapshot*>& snapshots_;
  const Style& style_;
  std::string out_;
};

int64_t Known(const Ledger& ledger) {
  int64_t sum = static_cast<int64_t>(ledger.torch_live + ledger.torch_cached);
  for (const auto& [owner, bytes] : ledger.libraries)
    sum += static_cast<int64_t>(bytes);
  return sum;
}

std::string Title(const Snapshot& snapshot) {
  return Fit(absl::StrCat(snapshot.name == "peak" || snapshot.name == "end" ||
                                  snapshot.name.starts_with("mark:")
                              ? snapshot.name
                              : "at",
                          " ", Duration(snapshot.time_ns)),
             kColumnWidth - 1);
}

void Rows(Table& table, const std::vector<const Snapshot*>& snapshots,
          bool tensors_seen) {
  if (tensors_seen) {
    table.Row("torch, tensors", true,
              [](const Ledger& l) { return l.torch_live; });
    table.Row("torch, cached (no tensor uses it)", true,
              [](const Ledger& l) { return l.torch_cached; });
  } else {
    table.Row("torch, taken from the driver", true,
              [](const Ledger& l) { return l.torch_reserved; });
  }
  std::set<std::string> owners;
  for (const Snapshot* snapshot : snapshots) {
    for (const auto& [owner, bytes] : snapshot->ledger.libraries)
      owners.insert(owner);
  }
  for (const std::string& owner : owners) {
    table.Row(OwnerName(owner), false, [&](const Ledger& l) -> int64_t {
      const auto it = l.libraries.find(owner);
      return it == l.libraries.end() ? 0 : static_cast<int64_t>(it->second);
    });
  }
  table.Row("CUDA code, local memory, streams", false,
            [](const Ledger& l) { return l.code; });
  table.Row("managed memory on the device (deduced)", false,
            [](const Ledger& l) { return l.managed_on_device; });
  table.Row("freed here, open in another process", false,
            [](const Ledger& l) { return l.held_elsewhere; });
  const bool others = std::any_of(
      snapshots.begin(), snapshots.end(),
      [](const Snapshot* s) { return s->ledger.context_includes_others; });
  table.Row(others ? "CUDA context and other processes" : "CUDA context", false,
            [](const Ledger& l) { return l.context; });
  table.Row("other processes, before this one", false,
            [](const Ledger& l) { return l.before_first_context; });
}

void Sum(Table& table, const std::vector<const Snapshot*>& snapshots) {
  bool all_known = true;
  for (const Snapshot* s : snapshots)
    all_known = all_known && s->ledger.device_used_known;
  const auto line = [](const Snapshot&) { return std::string(12, '-'); };
  if (!all_known) {
    table.Text("", line);
    table.Row("sum (device use was never sampled)", true,
              [](const Ledger& l) { return Known(l) + l.residual; });
    return;
  }
  table.Row("unexplained (CUDA, later processes)", true,
            [](const Ledger& l) { return model::Unexplained(l); });
  table.Text("", line);
  table.Row("device used, as nvidia-smi shows it", true,
            [](const Ledger& l) { return l.device_used; });
}

// Remarks under the table that a reader needs to trust or doubt it.
std::string Remarks(const model::Device& device,
                    const std::vector<const Snapshot*>& snapshots,
                    const Style& style) {
  std::string out;
  const auto say = [&](const std::string& text) {
    absl::StrAppend(&out, "  ", style.Dim(Wrap(text, 98, "  ")), "\n");
  };
  for (const Snapshot* s : snapshots) {
    if (s->ledger.device_used_known && s->ledger.sample_age_ns > kOldSample) {
      say(absl::StrCat("The sample nearest to \"", s->name, "\" is ",
                       Duration(s->ledger.sample_age_ns), " away."));
    }
  }
  const model::TorchCheck& check = device.torch_check;
  if (check.mismatches > 0) {
    say(absl::StrCat("torch's own totals differ from these in ",
                     Count(check.mismatches), " of ", Count(check.reports),
                     " reports, by up to ", Bytes(check.largest_error), "."));
  } else if (check.reports > 0) {
    say(absl::StrCat("torch's own totals agree to the byte in all ",
                     Count(check.reports), " reports."));
  }
  if (check.reserved_mismatches > 0) {
    say(absl::StrCat("torch's reserved total differs from its segments in ",
                     Count(check.reserved_mismatches), " of ",
                     Count(check.reserved_reports), " reports, by up to ",
                     Bytes(check.largest_reserved_error), "."));
  }
  return out;
}

}  // namespace

std::string LedgerText(const model::Device& device,
                       const std::vector<const Snapshot*>& snapshots,
                       uint64_t device_total, const Style& style) {
  Table table(snapshots, style);
  table.Text("MiB", Title);
  Rows(table, snapshots, TensorsSeen(device));
  Sum(table, snapshots);
  if (device_total > 0)
    table.Row("device total", true,
              [&](const Ledger&) { return device_total; });
  table.Row("of cached: freed, a stream may still use", false,
            [](const Ledger& l) { return l.torch_stream_pending; });
  table.Row("managed memory (host or device)", false,
            [](const Ledger& l) { return l.managed; });
  table.Row("pinned host memory (not on the device)", false,
            [](const Ledger& l) { return l.host_pinned; });
  return absl::StrCat(table.Take(), Remarks(device, snapshots, style));
}

}  // namespace dstrace::report
