// SPDX-License-Identifier: Apache-2.0
//
// "Did you mean": the nearest of a list of names. Thread-safety: pure
// functions.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_NEAREST_H_
#define DSTRACE_ANALYZER_DEEPSPEED_NEAREST_H_

#include <string>
#include <string_view>
#include <vector>

namespace dstrace::deepspeed {

// Insertions, deletions, substitutions and swaps of neighbours that turn one
// name into the other.
int EditDistance(std::string_view from, std::string_view to);

// The nearest name within a quarter of the word's length (at least 2 edits);
// empty when none is that near.
std::string NearestName(std::string_view name,
                        const std::vector<std::string>& names);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_NEAREST_H_
