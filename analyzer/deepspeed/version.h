// SPDX-License-Identifier: Apache-2.0
//
// Release numbers of DeepSpeed and torch. Thread-safety: plain data.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_VERSION_H_
#define DSTRACE_ANALYZER_DEEPSPEED_VERSION_H_

#include <compare>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace dstrace::deepspeed {

struct Version {
  int major = 0;
  int minor = 0;
  int patch = 0;
  // clang-tidy 14 takes the 0 that < compares its result with for a pointer.
  // NOLINTNEXTLINE(modernize-use-nullptr)
  auto operator<=>(const Version&) const = default;
};

// Reads "0.10.1", "2.0.1+cu118", "v0.19" (a missing part is 0). Error:
// InvalidArgument when the text does not begin with a number.
absl::StatusOr<Version> ParseVersion(std::string_view text);

std::string FormatVersion(const Version& version);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_VERSION_H_
