// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/format.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace dstrace::report {
namespace {

constexpr double kKiB = 1024.0;

// "1234567" -> "1,234,567"
std::string Grouped(const std::string& digits) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

// Length of the well-formed UTF-8 sequence at the start of `text`, 0 if there
// is none. Surrogates and the two non-characters of the first plane, which XML
// forbids, count as broken.
size_t SequenceLength(std::string_view text) {
  const auto at = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = at(0);
  const unsigned second = at(1);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xC2 && first < 0xE0   ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong =
      (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool beyond =
      (first == 0xED && second >= 0xA0) || (first == 0xF4 && second >= 0x90);
  const bool forbidden = first == 0xEF && second == 0xBF && at(2) >= 0xBE;
  return overlong || beyond || forbidden ? 0 : length;
}

// The first (or last) `columns` code points.
std::string_view Head(std::string_view text, size_t columns) {
  size_t i = 0;
  while (i < text.size() && columns-- > 0) i += SequenceLength(text.substr(i));
  return text.substr(0, i);
}

std::string_view Tail(std::string_view text, size_t columns) {
  const size_t all = Columns(text);
  return all <= columns ? text : text.substr(Head(text, all - columns).size());
}

std::vector<std::string> Words(const std::string& text) {
  return absl::StrSplit(text, ' ', absl::SkipEmpty());
}

}  // namespace

std::string Bytes(uint64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  if (value < kKiB * kKiB) return absl::StrFormat("%.1f KiB", value / kKiB);
  if (value < kKiB * kKiB * kKiB)
    return absl::StrFormat("%.1f MiB", value / kKiB / kKiB);
  const double gib = value / kKiB / kKiB / kKiB;
  if (gib < kKiB) return absl::StrFormat("%.2f GiB", gib);
  return absl::StrFormat("%.2f TiB", gib / kKiB);
}

std::string Mebibytes(int64_t bytes) {
  const bool negative = bytes < 0;
  const uint64_t size = negative ? 0 - static_cast<uint64_t>(bytes)
                                 : static_cast<uint64_t>(bytes);
  const auto tenths = static_cast<uint64_t>(
      std::llround(static_cast<double>(size) * 10 / 1048576));
  const bool sign = negative && tenths > 0;
  return absl::StrCat(sign ? "-" : "", Grouped(absl::StrCat(tenths / 10)), ".",
                      tenths % 10);
}

std::string Count(uint64_t count) { return Grouped(absl::StrCat(count)); }

std::string Duration(uint64_t nanoseconds) {
  const double seconds = static_cast<double>(nanoseconds) / 1e9;
  if (seconds < 0.1) return absl::StrFormat("%.1f ms", seconds * 1e3);
  if (seconds < 119.95) return absl::StrFormat("%.2f s", seconds);
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 7200)
    return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %02d min", whole / 3600, whole / 60 % 60);
}

std::string Share(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  return absl::StrFormat("%.1f %%", 100.0 * static_cast<double>(part) /
                                        static_cast<double>(whole));
}

size_t Columns(std::string_view text) {
  size_t columns = 0;
  for (const char c : text)
    columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return columns;
}

std::string Printable(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = SequenceLength(text.substr(i));
    const bool control =
        static_cast<unsigned char>(text[i]) < 0x20 || text[i] == 0x7F ||
        (length == 2 && text[i] == '\xC2' && (text[i + 1] & 0x7F) < 0x20);
    if (length == 0 || control) {
      out += '?';
    } else {
      out += text.substr(i, length);
    }
    i += length == 0 ? 1 : length;
  }
  return out;
}

std::string Fit(std::string_view raw, size_t width) {
  std::string text = Printable(raw);
  if (Columns(text) <= width) return text;
  if (width == 0) return "";
  const size_t head =
      (width - 1) / 3;  // the end of a path says more than its start
  return absl::StrCat(std::string(Head(text, head)), "…",
                      std::string(Tail(text, width - 1 - head)));
}

std::string FitStart(std::string_view raw, size_t width) {
  std::string text = Printable(raw);
  if (Columns(text) <= width) return text;
  if (width == 0) return "";
  return absl::StrCat(std::string(Head(text, width - 1)), "…");
}

std::string PadLeft(std::string_view text, size_t width) {
  const size_t columns = Columns(text);
  return absl::StrCat(std::string(columns < width ? width - columns : 0, ' '),
                      std::string(text));
}

std::string PadRight(std::string_view text, size_t width) {
  const size_t columns = Columns(text);
  return absl::StrCat(std::string(text),
                      std::string(columns < width ? width - columns : 0, ' '));
}

std::string Wrap(std::string_view raw, size_t width, std::string_view indent) {
  const std::string text = Printable(raw);
  std::string out;
  size_t used = Columns(indent);
  bool first = true;
  for (const std::string& word : Words(text)) {
    const std::string fitted = Fit(word, width - Columns(indent));
    const size_t columns = Columns(fitted);
    if (!first && used + 1 + columns > width) {
      out.append("\n").append(indent).append(fitted);
      used = Columns(indent) + columns;
      continue;
    }
    absl::StrAppend(&out, first ? "" : " ", fitted);
    used += columns + (first ? 0 : 1);
    first = false;
  }
  return out;
}

}  // namespace dstrace::report
