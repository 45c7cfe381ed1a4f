// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_REPORT_GOLDEN_H_
#define DSTRACE_TESTS_REPORT_GOLDEN_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace dstrace::testing {

// Compares with tests/golden/NAME; DSTRACE_UPDATE_GOLDEN=1 writes it instead
// (then read the difference before committing it).
inline void ExpectGolden(const std::string& name, const std::string& actual) {
  const std::string path = std::string(DSTRACE_GOLDEN_DIR) + "/" + name;
  if (std::getenv("DSTRACE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << actual;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_TRUE(file.is_open()) << path << " is missing";
  EXPECT_EQ(expected.str(), actual) << "differs from " << path;
}

}  // namespace dstrace::testing

#endif  // DSTRACE_TESTS_REPORT_GOLDEN_H_
