// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_FOLDED_H_
#define DSTRACE_ANALYZER_REPORT_FOLDED_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/report/view.h"

namespace dstrace::report {

struct FoldedOptions {
  std::string at = "peak";
  std::optional<int> device;
  // false: what holds the device's memory at `at`; the sum is the device use.
  // true: what made torch reserve memory, as far as it is reserved at the peak.
  bool reserved = false;
  std::string root;  // put in front of every stack, "rank 0"; empty: nothing
};

// A stack with its weight in bytes, root first.
struct FoldedStack {
  enum class Kind { kGroup, kUser, kLibrary, kNative };
  struct Frame {
    std::string name;
    Kind kind = Kind::kGroup;
  };
  std::vector<Frame> frames;
  uint64_t bytes = 0;
};

std::vector<FoldedStack> FoldedStacks(View& view, const FoldedOptions& options);

// "a;b;c 4096" lines, as flame-graph tools read them. ';' and control
// characters in names are replaced.
std::string Folded(const std::vector<FoldedStack>& stacks);

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_FOLDED_H_
