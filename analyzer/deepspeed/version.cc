// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/version.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace dstrace::deepspeed {
namespace {

// Takes the digits at the front; nullopt when there are none or too many.
bool TakeNumber(std::string_view* text, int* number) {
  size_t digits = 0;
  int value = 0;
  while (digits < text->size() && (*text)[digits] >= '0' &&
         (*text)[digits] <= '9') {
    if (digits == 6) return false;
    value = value * 10 + ((*text)[digits] - '0');
    ++digits;
  }
  if (digits == 0) return false;
  text->remove_prefix(digits);
  *number = value;
  return true;
}

}  // namespace

absl::StatusOr<Version> ParseVersion(std::string_view text) {
  std::string_view rest = text;
  if (!rest.empty() && (rest[0] == 'v' || rest[0] == 'V')) {
    rest.remove_prefix(1);
  }
  Version version;
  int* parts[] = {&version.major, &version.minor, &version.patch};
  for (int i = 0; i < 3; ++i) {
    if (!TakeNumber(&rest, parts[i])) {
      if (i > 0) break;
      return absl::InvalidArgumentError(
          absl::StrCat("not a version number: \"", std::string(text), "\""));
    }
    if (rest.empty() || rest[0] != '.') break;
    rest.remove_prefix(1);
  }
  return version;
}

std::string FormatVersion(const Version& version) {
  return absl::StrFormat("%d.%d.%d", version.major, version.minor,
                         version.patch);
}

}  // namespace dstrace::deepspeed
