// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "analyzer/report/format.h"
#include "analyzer/report/groups_text.h"
#include "analyzer/report/header_text.h"
#include "analyzer/report/ledger_text.h"
#include "analyzer/report/rows_text.h"
#include "analyzer/report/timeline_text.h"
#include "analyzer/report/verdict.h"

namespace dstrace::report {
namespace {

using model::Device;
using model::Snapshot;

uint64_t Whole(const model::Ledger& ledger) {
  if (ledger.device_used_known) return ledger.device_used;
  uint64_t sum = ledger.torch_reserved;
  for (const auto& [owner, bytes] : ledger.libraries) sum += bytes;
  return sum;
}

class Writer {
 public:
  Writer(View& view, const TextOptions& options)
      : view_(view),
        options_(options),
        style_{options.colour},
        rows_{options.top, options.width, options.stacks} {}

  // The sections after the header, of each device in turn.
  std::string Write() {
    out_ = HeaderText(view_.run(), options_.width, style_);
    bool any = false;
    for (const bool host : {false, true}) {  // tensors in host memory last
      for (const Device& device : view_.run().devices) {
        if ((device.index < 0) != host || !Wanted(device)) continue;
        OneDevice(device);
        any = true;
      }
    }
    if (!any) NoDevice();
    Failures();
    return std::move(out_);
  }

 private:
  bool Wanted(const Device& device) const {
    return !options_.device.has_value() || *options_.device == device.index;
  }

  void Heading(const std::string& title) {
    absl::StrAppend(&out_, "\n", style_.Bold(title), "\n");
  }
  void Line(const std::string& text) {
    absl::StrAppend(&out_, "  ", Wrap(text, options_.width, "  "), "\n");
  }

  void NoDevice() {
    absl::StrAppend(&out_, "\n");
    if (options_.device.has_value() && !view_.run().devices.empty()) {
      Line(absl::StrCat("GPU ", *options_.device,
                        " was not used by this process."));
    } else if (view_.run().event_count == 0) {
      Line(
          "No memory event was recorded: the program did not reach CUDA, or "
          "not past dstrace.");
    } else {
      Line("No device memory was allocated.");
    }
  }

  void OneDevice(const Device& device) {
    Heading(DeviceName(view_.run(), device.index));
    const Snapshot* chosen = FindSnapshot(device, options_.at);
    if (chosen == nullptr) {
      Line(absl::StrCat("Nothing is known at \"", options_.at, "\"."));
      return;
    }
    const std::vector<std::string> verdict = Verdict(view_, device, *chosen);
    for (const std::string& sentence : verdict) Line(sentence);
    if (verdict.empty()) Line("This process held no memory on it.");
    if (device.index >= 0) {
      Layers(device, *chosen);
      Heading("Where the device's memory is");
      absl::StrAppend(&out_,
                      LedgerText(device, LedgerColumns(device, chosen),
                                 DeviceTotal(view_.run(), device), style_));
    }
    HoldersSection(device, *chosen);
    if (device.index < 0) return;
    GroupsSection(device);
    TimelineSection(device);
    GrowthSection(device);
  }

  // What was not seen at all is said, not left to be guessed.
  void Layers(const Device& device, const Snapshot& snapshot) {
    const bool tensors = TensorsSeen(device);
    const bool driver =
        !device.growth.empty() || snapshot.ledger.device_used_known ||
        std::any_of(snapshot.holdings.begin(), snapshot.holdings.end(),
                    [](const auto& holding) {
                      return holding.layer == model::Layer::kDevice;
                    });
    if (!tensors && snapshot.ledger.torch_reserved > 0) {
      Line(
          "torch did not tell of its tensors (its cudaMallocAsync backend does "
          "not): what it took from the driver stands for them.");
    } else if (!tensors) {
      Line("torch was not seen: no tensor of it was allocated here.");
    }
    if (!driver)
      Line(
          "The driver was not seen: only torch's own view of the memory is "
          "known.");
  }

  std::vector<const Snapshot*> LedgerColumns(const Device& device,
                                             const Snapshot* chosen) {
    std::vector<const Snapshot*> columns;
    for (const char* name : {"peak", "end"}) {
      const Snapshot* snapshot = FindSnapshot(device, name);
      if (snapshot != nullptr) columns.push_back(snapshot);
    }
    if (std::find(columns.begin(), columns.end(), chosen) == columns.end()) {
      columns.push_back(chosen);
    }
    return columns;
  }

  void HoldersSection(const Device& device, const Snapshot& snapshot) {
    const std::vector<Row> rows = Holders(view_, device, snapshot);
    const model::Ledger& ledger = snapshot.ledger;
    const std::string when = snapshot.name == "peak" ? "at the peak"
                             : snapshot.name == "end"
                                 ? "at the end"
                                 : absl::StrCat("at ", snapshot.name);
    std::vector<Extra> extras;
    if (TensorsSeen(device) || ledger.torch_live > 0) {
      extras.push_back(
          {"torch's cache: no tensor uses it", ledger.torch_cached});
    }
    if (ledger.held_elsewhere > 0) {
      extras.push_back(
          {"freed, open in another process", ledger.held_elsewhere});
    }
    const int64_t named = model::NamedResidual(ledger);
    if (ledger.residual > named) {
      extras.push_back({"CUDA context and other processes",
                        static_cast<uint64_t>(ledger.residual - named)});
    }
    if (!rows.empty() || ledger.torch_cached > 0) {
      Heading(absl::StrCat("Who holds it ", when, " (",
                           Duration(snapshot.time_ns), ")"));
      absl::StrAppend(&out_, HoldersText(view_, rows, extras, Whole(ledger),
                                         rows_, style_));
    }
    const std::vector<Row> host = HostHolders(view_, snapshot);
    if (host.empty()) return;
    Heading(absl::StrCat("Beside it ", when, ": pinned host memory",
                         ledger.managed > 0 ? " and managed memory" : ""));
    absl::StrAppend(
        &out_,
        HoldersText(view_, host, {}, ledger.host_pinned + ledger.managed,
                    {std::min<size_t>(rows_.top, 3), rows_.width, rows_.stacks},
                    style_));
  }

  void GroupsSection(const Device& device) {
    const std::string table = GroupsText(view_, device, rows_, style_);
    if (table.empty()) return;
    Heading("What each NCCL communicator and CUDA graph asked the driver for");
    absl::StrAppend(&out_, table);
  }

  void TimelineSection(const Device& device) {
    const std::string plot =
        TimelineText(device, view_.run().process.duration_ns, view_.run().marks,
                     options_.width, style_);
    if (plot.empty()) return;
    Heading("Over time");
    absl::StrAppend(&out_, plot);
  }

  void GrowthSection(const Device& device) {
    const std::vector<Row> rows = TorchGrowth(view_, device);
    if (rows.empty()) return;
    Heading("Who made torch reserve it");
    absl::StrAppend(&out_, GrowthText(view_, rows, rows_, style_));
  }

  void Failures() {
    if (view_.run().failures.empty()) return;
    Heading("Failed allocations");
    absl::StrAppend(&out_,
                    FailuresText(view_, view_.run().failures, rows_, style_));
  }

  View& view_;
  const TextOptions& options_;
  const Style style_;
  const RowsOptions rows_;
  std::string out_;
};

std::string RankRow(const std::string& rank, const std::string& gpu,
                    const std::string& peak, const std::string& live,
                    const std::string& cached, const std::string& rest,
                    const std::string& end) {
  return absl::StrCat(PadLeft(rank, 6), PadLeft(gpu, 5), PadLeft(peak, 13),
                      PadLeft(live, 13), PadLeft(cached, 13), PadLeft(rest, 13),
                      "  ", end);
}

}  // namespace

std::string Text(View& view, const TextOptions& options) {
  return Writer(view, options).Write();
}

std::string RankTable(const std::vector<RankLine>& ranks, size_t width) {
  std::string out = absl::StrCat("All processes, at the peak of each\n",
                                 RankRow("rank", "GPU", "device used",
                                         "tensors", "cached", "rest", "ended"),
                                 "\n");
  for (const RankLine& line : ranks) {
    const auto& process = line.run->process;
    const std::string rank = process.rank.has_value()
                                 ? absl::StrCat(*process.rank)
                                 : absl::StrCat(process.pid);
    for (const Device& device : line.run->devices) {
      const Snapshot* peak = FindSnapshot(device, "peak");
      if (peak == nullptr) continue;
      const uint64_t used = Whole(peak->ledger);
      const uint64_t torch = peak->ledger.torch_reserved;
      absl::StrAppend(
          &out,
          Fit(RankRow(rank, absl::StrCat(device.index), Bytes(used),
                      Bytes(peak->ledger.torch_live),
                      Bytes(peak->ledger.torch_cached),
                      Bytes(used > torch ? used - torch : 0), EndText(process)),
              width),
          "\n");
    }
  }
  return out;
}

}  // namespace dstrace::report
