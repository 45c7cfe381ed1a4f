// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/nearest.h"

#include <algorithm>

namespace dstrace::deepspeed {
namespace {

// Longer than any key; bounds the quadratic cost on hostile input.
constexpr size_t kLongestName = 128;

}  // namespace

int EditDistance(std::string_view from, std::string_view to) {
  // Three rows of the usual table: the swap looks two rows back.
  std::vector<int> older(to.size() + 1);
  std::vector<int> previous(to.size() + 1);
  std::vector<int> current(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j) previous[j] = static_cast<int>(j);
  for (size_t i = 1; i <= from.size(); ++i) {
    current[0] = static_cast<int>(i);
    for (size_t j = 1; j <= to.size(); ++j) {
      int substitution = previous[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      current[j] =
          std::min({previous[j] + 1, current[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] &&
          from[i - 2] == to[j - 1]) {
        current[j] = std::min(current[j], older[j - 2] + 1);
      }
    }
    older.swap(previous);
    previous.swap(current);
  }
  return previous[to.size()];
}

std::string NearestName(std::string_view name,
                        const std::vector<std::string>& names) {
  if (name.size() > kLongestName) return "";
  int limit = std::max<int>(2, static_cast<int>(name.size()) / 4);
  if (name.size() <= 4) limit = 1;
  std::string best;
  int best_distance = limit + 1;
  for (const std::string& candidate : names) {
    int distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace dstrace::deepspeed
