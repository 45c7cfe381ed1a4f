// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_LOG_LOG_FIXTURE_H_
#define DSTRACE_TESTS_LOG_LOG_FIXTURE_H_

// A folder for one log file, which every test may read as a message.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "proto/trace.pb.h"

namespace dstrace::log {

class LogFixture : public testing::Test {
 protected:
  LogFixture() {
    char folder[] = "/tmp/dstrace_log_XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/run.pb";
  }
  ~LogFixture() override { std::filesystem::remove_all(folder_); }

  proto::TraceFile Read() const {
    std::ifstream in(path_, std::ios::binary);
    std::string bytes(std::filesystem::file_size(path_), '\0');
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    proto::TraceFile file;
    EXPECT_TRUE(file.ParseFromString(bytes)) << bytes.size() << " bytes";
    return file;
  }

  std::string folder_;
  std::string path_;
};

}  // namespace dstrace::log

#endif  // DSTRACE_TESTS_LOG_LOG_FIXTURE_H_
