// SPDX-License-Identifier: Apache-2.0
//
// dstrace-report: traces in, reports out.

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "analyzer/cli/compact.h"
#include "analyzer/cli/doctor.h"
#include "analyzer/cli/options.h"
#include "analyzer/cli/output.h"
#include "analyzer/cli/report.h"

namespace {

constexpr int kBadFile = 1;
constexpr int kBadUsage = 2;

int Fail(const absl::Status& status, int exit_status) {
  std::fprintf(stderr, "dstrace-report: %s\n",
               std::string(status.message()).c_str());
  return exit_status;
}

int Print(const std::string& path, const std::string& text) {
  const absl::Status status = dstrace::cli::WriteOutput(path, text);
  return status.ok() ? 0 : Fail(status, kBadFile);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // WriteOutput sees EPIPE instead
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (!words.empty() && words[0] == "doctor") {
    return dstrace::cli::DoctorMain(argc - 1, argv + 1);
  }
  if (!words.empty() && words[0] == "compact") {
    return dstrace::cli::CompactMain({words.begin() + 1, words.end()});
  }
  const auto options = dstrace::cli::ParseOptions(words);
  if (!options.ok()) return Fail(options.status(), kBadUsage);
  if (options->help) return Print("", dstrace::cli::kUsage);
  if (options->version)
    return Print("", "dstrace-report " DSTRACE_VERSION "\n");
  const auto text = dstrace::cli::Render(*options);
  if (!text.ok()) return Fail(text.status(), kBadFile);
  return Print(options->output, *text);
}
