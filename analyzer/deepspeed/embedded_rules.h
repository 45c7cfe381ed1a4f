// SPDX-License-Identifier: Apache-2.0
//
// The text of rules/deepspeed.json, put into the program by the build.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_EMBEDDED_RULES_H_
#define DSTRACE_ANALYZER_DEEPSPEED_EMBEDDED_RULES_H_

#include <string_view>

namespace dstrace::deepspeed {

extern const std::string_view kEmbeddedRules;

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_EMBEDDED_RULES_H_
