// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_ATTRIBUTION_BUILTIN_RULES_H_
#define DSTRACE_ANALYZER_ATTRIBUTION_BUILTIN_RULES_H_

#include <span>
#include <string_view>

namespace dstrace::attribution {

struct BuiltInFile {
  std::string_view name;
  std::string_view text;
};

// The files of rules/, made into C++ by embed_rules.cmake.
extern const std::span<const BuiltInFile> kBuiltInRules;

}  // namespace dstrace::attribution

#endif  // DSTRACE_ANALYZER_ATTRIBUTION_BUILTIN_RULES_H_
