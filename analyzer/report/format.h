// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_FORMAT_H_
#define DSTRACE_ANALYZER_REPORT_FORMAT_H_

// Numbers and words as every report writes them.
//
// Thread-safety: pure functions.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dstrace::report {

// "0 B", "512 B", "20.0 KiB", "33.6 MiB", "1.91 GiB": one decimal up to MiB,
// two for GiB and TiB. Never wider than 11 columns below 1 000 TiB.
std::string Bytes(uint64_t bytes);
// "34,011.0": MiB with one decimal, for columns that are added up. Negative
// values keep their sign.
std::string Mebibytes(int64_t bytes);
// "474,153"
std::string Count(uint64_t count);
// "0.0 s", "12.31 s", "3 min 05 s", "2 h 05 min"
std::string Duration(uint64_t nanoseconds);
// Share of a whole: "63.2 %"; "-" where the whole is 0.
std::string Share(uint64_t part, uint64_t whole);

// Terminal columns that UTF-8 text takes (one per code point).
size_t Columns(std::string_view text);
// Control characters and broken UTF-8 become '?': names come from the traced
// program and must not steer the terminal.
std::string Printable(std::string_view text);
// Text cut in the middle ("lab/…/train.py:12") to at most `width` columns.
std::string Fit(std::string_view text, size_t width);
// Text cut at its end ("_allgather_par…") to at most `width` columns.
std::string FitStart(std::string_view text, size_t width);
std::string PadLeft(std::string_view text, size_t width);
std::string PadRight(std::string_view text, size_t width);
// Words broken over lines of at most `width` columns; each line after the first
// starts with `indent`, which the first has as its own text already.
std::string Wrap(std::string_view text, size_t width, std::string_view indent);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_FORMAT_H_
