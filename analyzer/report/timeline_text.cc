// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/timeline_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/report/format.h"

namespace dstrace::report {
namespace {

using model::TimelinePoint;

constexpr size_t kAxis = 11;  // columns left of the plot
constexpr int kRows = 10;
constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kMiB = 1024.0 * 1024;

struct Cell {
  uint64_t used = 0;
  uint64_t reserved = 0;
  uint64_t live = 0;
};

// The plot's columns: the largest value in each, carried on where no point
// falls into it.
std::vector<Cell> Spread(const std::vector<TimelinePoint>& points,
                         uint64_t duration, size_t columns) {
  std::vector<Cell> cells(columns);
  std::vector<bool> filled(columns);
  Cell last;
  size_t next = 0;
  for (size_t c = 0; c < columns; ++c) {
    const auto end = static_cast<uint64_t>(static_cast<double>(duration) *
                                           static_cast<double>(c + 1) /
                                           static_cast<double>(columns));
    bool any = false;
    for (; next < points.size() &&
           (points[next].time_ns < end || c + 1 == columns);
         ++next) {
      const TimelinePoint& p = points[next];
      last = {std::max({p.device_used, p.torch_reserved, p.torch_live}),
              p.torch_reserved, p.torch_live};
      Cell& cell = cells[c];
      cell = {std::max(cell.used, last.used),
              std::max(cell.reserved, last.reserved),
              std::max(cell.live, last.live)};
      any = true;
    }
    if (!any) cells[c] = last;
  }
  return cells;
}

// A round number at or above `value`, so that the ticks read well.
double NiceCeiling(double value) {
  double unit = 1;
  while (unit * 10 < value) unit *= 10;
  while (unit > value) unit /= 10;
  for (const double factor : {1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0,
                              6.0, 7.0, 8.0, 9.0, 10.0}) {
    if (unit * factor >= value) return unit * factor;
  }
  return unit * 10;
}

std::string Tick(double value, double top) {
  const double step = top / kRows;
  if (step >= 1) return absl::StrFormat("%.0f", value);
  if (step >= 0.1) return absl::StrFormat("%.1f", value);
  return absl::StrFormat("%.2f", value);
}

std::string PlotRow(const std::vector<Cell>& cells, double floor, double step,
                    bool lowest, const Style& style) {
  std::string out;
  std::string run;
  char kind = 0;
  const auto flush = [&] {
    absl::StrAppend(&out, kind == 'l'   ? style.Live(run)
                          : kind == 'c' ? style.Cached(run)
                          : kind == 'd' ? style.Rest(run)
                                        : run);
    run.clear();
  };
  for (const Cell& cell : cells) {
    const auto reaches = [&](uint64_t bytes) {
      return static_cast<double>(bytes) > (lowest ? 0.0 : floor + step / 2);
    };
    const bool live = static_cast<double>(cell.live) > floor + step / 2;
    const bool cached = static_cast<double>(cell.reserved) > floor + step / 2;
    const char now = live ? 'l' : cached ? 'c' : reaches(cell.used) ? 'd' : ' ';
    if (now != kind && !run.empty()) flush();
    kind = now;
    run += now == 'l' ? "█" : now == 'c' ? "▓" : now == 'd' ? "░" : " ";
  }
  flush();
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

// "▼ peak 33.21 GiB at 12.31 s" with its arrow over the peak's column.
std::string PeakLine(uint64_t peak_bytes, uint64_t peak_time, size_t column,
                     size_t columns) {
  const std::string text =
      absl::StrCat("peak ", Bytes(peak_bytes), " at ", Duration(peak_time));
  const std::string indent(kAxis + column, ' ');
  if (column + 2 + Columns(text) <= columns)
    return absl::StrCat(indent, "▼ ", text);
  const size_t before = Columns(text) + 1;
  return absl::StrCat(
      std::string(kAxis + column - std::min(column, before), ' '), text, " ▼");
}

std::string TimeAxis(uint64_t duration, size_t columns) {
  std::string line = std::string(kAxis - 1, ' ') + "└";
  std::string labels(kAxis + columns, ' ');
  constexpr size_t kTicks = 4;
  for (size_t c = 0; c < columns; ++c) {
    line += c % (columns / kTicks) == columns / kTicks - 1 ? "┴" : "─";
  }
  const auto put = [&](size_t column, const std::string& text) {
    const size_t begin = std::min(column, labels.size() - text.size());
    labels.replace(begin, text.size(), text);
  };
  put(kAxis, "0");
  for (size_t tick = 1; tick <= kTicks; ++tick) {
    const std::string text = Duration(duration / kTicks * tick);
    const size_t column = kAxis + columns / kTicks * tick - 1;
    put(tick == kTicks ? labels.size() - text.size() : column - text.size() / 2,
        text);
  }
  while (labels.ends_with(' ')) labels.pop_back();
  return absl::StrCat(line, "\n", labels, "\n");
}

// One line of carets for the program's own marks, and their names.
std::string MarkLines(const std::vector<model::MarkPoint>& marks,
                      uint64_t duration, size_t columns, size_t width) {
  std::string line(columns, ' ');
  std::vector<std::string> names;
  for (const model::MarkPoint& mark : marks) {
    if (mark.kind == 2 || mark.time_ns > duration || names.size() == 9)
      continue;
    const auto column = static_cast<size_t>(static_cast<double>(mark.time_ns) /
                                            static_cast<double>(duration) *
                                            static_cast<double>(columns - 1));
    if (line[column] != ' ') continue;
    line[column] = static_cast<char>('1' + names.size());
    names.push_back(absl::StrCat(names.size() + 1, " ", mark.name));
  }
  if (names.empty()) return "";
  while (line.ends_with(' ')) line.pop_back();
  std::string text = "marks:";
  for (const std::string& name : names) absl::StrAppend(&text, " ", name, ";");
  text.pop_back();
  const std::string indent(kAxis, ' ');
  return absl::StrCat(indent, line, "\n", indent, Wrap(text, width, indent),
                      "\n");
}

}  // namespace

std::string TimelineText(const model::Device& device, uint64_t duration_ns,
                         const std::vector<model::MarkPoint>& marks,
                         size_t width, const Style& style) {
  if (device.timeline.size() < 2) return "";
  const uint64_t duration =
      std::max(duration_ns, device.timeline.back().time_ns);
  if (duration == 0) return "";
  const size_t columns = (width - kAxis) / 4 * 4;
  const std::vector<Cell> cells = Spread(device.timeline, duration, columns);
  uint64_t peak = 0;
  for (const Cell& cell : cells) peak = std::max(peak, cell.used);
  if (peak == 0) return "";
  const bool gib = static_cast<double>(peak) >= kGiB;
  const double unit = gib ? kGiB : kMiB;
  const double top = NiceCeiling(static_cast<double>(peak) / unit);
  const double step = top / kRows;
  const auto column =
      static_cast<size_t>(std::min(static_cast<double>(device.peak_time_ns) /
                                       static_cast<double>(duration),
                                   1.0) *
                          static_cast<double>(columns - 1));
  std::string out = absl::StrCat(
      PadLeft(gib ? "GiB" : "MiB", kAxis - 2), "  ",
      PeakLine(peak, device.peak_time_ns, column, columns).substr(kAxis), "\n");
  for (int row = kRows - 1; row >= 0; --row) {
    const bool labelled = row == kRows - 1 || row % 2 == 1;
    const std::string label = labelled ? Tick((row + 1) * step, top) : "";
    absl::StrAppend(
        &out, PadLeft(label, kAxis - 2), labelled ? " ┤" : " │",
        PlotRow(cells, row * step * unit, step * unit, row == 0, style), "\n");
  }
  absl::StrAppend(&out, TimeAxis(duration, columns),
                  MarkLines(marks, duration, columns, width));
  absl::StrAppend(&out, std::string(kAxis, ' '), style.Live("█"),
                  " torch, tensors  ", style.Cached("▓"), " torch, cached  ",
                  style.Rest("░"), " rest of the device\n");
  return out;
}

}  // namespace dstrace::report
