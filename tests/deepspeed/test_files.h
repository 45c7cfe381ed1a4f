// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_DEEPSPEED_TEST_FILES_H_
#define DSTRACE_TESTS_DEEPSPEED_TEST_FILES_H_

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "analyzer/deepspeed/finding.h"

namespace dstrace::deepspeed {

inline std::string ReadTestFile(const std::string& name) {
  std::ifstream file(std::string(DSTRACE_DEEPSPEED_TEST_DATA) + "/" + name,
                     std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The first finding of the rule, nullptr when there is none.
inline const Finding* FindRule(const std::vector<Finding>& findings,
                               const std::string& rule,
                               const std::string& key = "") {
  auto found =
      std::find_if(findings.begin(), findings.end(), [&](const Finding& one) {
        return one.rule == rule && (key.empty() || one.place.key == key);
      });
  return found == findings.end() ? nullptr : &*found;
}

inline std::string Describe(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& one : findings) {
    text += std::string(SeverityName(one.severity)) + " " + one.rule + " " +
            one.place.key + ": " + one.message + "\n";
  }
  return text;
}

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_TESTS_DEEPSPEED_TEST_FILES_H_
