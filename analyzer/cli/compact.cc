// SPDX-License-Identifier: Apache-2.0
#include "analyzer/cli/compact.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "analyzer/log/compact.h"
#include "analyzer/log/file.h"
#include "analyzer/log/trace_reader.h"
#include "analyzer/report/format.h"

namespace dstrace::cli {
namespace {

constexpr char kUsage[] =
    "usage: dstrace compact FILE... [-o OUTPUT] [--remove]\n"
    "  Compresses finished traces; dstrace-report reads them as they are, and\n"
    "  zstd -d gives the same bytes back.\n"
    "  -o FILE     where to (one trace only; default: its name with .zst)\n"
    "  --remove    removes each trace once its copy has been read back\n";

struct Arguments {
  std::vector<std::string> files;
  std::string output;
  bool remove = false;
  bool help = false;
};

absl::StatusOr<Arguments> ParseArguments(
    const std::vector<std::string>& words) {
  Arguments out;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--help" || word == "-h") {
      out.help = true;
    } else if (word == "--remove") {
      out.remove = true;
    } else if (word == "-o" || word == "--output") {
      if (++i == words.size()) {
        return absl::InvalidArgumentError(absl::StrCat(word, " needs a file"));
      }
      out.output = words[i];
    } else if (word.size() > 1 && word[0] == '-') {
      return absl::InvalidArgumentError(absl::StrCat("unknown option ", word));
    } else {
      out.files.push_back(word);
    }
  }
  if (out.help) return out;
  if (out.files.empty()) return absl::InvalidArgumentError("which trace?");
  if (!out.output.empty() && out.files.size() > 1) {
    return absl::InvalidArgumentError("-o goes with one trace");
  }
  return out;
}

// What compacting could lose must not be compacted: a file that is no trace,
// and the rest of one that is not finished.
absl::Status CheckFinished(const std::string& file) {
  const auto reader = log::TraceReader::Open(file);
  if (!reader.ok()) return reader.status();
  const model::Process& process = (*reader)->facts().process;
  if (process.end != model::EndKind::kStillRunning) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(file, ": is still being written by process ", process.pid,
                   "; compact it when that has ended"));
}

absl::Status Remove(const log::File& file) {
  struct stat now {};
  if (stat(file.path().c_str(), &now) == 0 && now.st_ino == file.inode() &&
      now.st_dev == file.device() &&
      static_cast<uint64_t>(now.st_size) == file.size()) {
    if (unlink(file.path().c_str()) == 0) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(
        file.path(), ": cannot be removed: ", std::strerror(errno)));
  }
  return absl::AbortedError(
      absl::StrCat(file.path(), ": changed meanwhile, and is not removed"));
}

absl::Status CompactOne(const std::string& name, const std::string& to,
                        bool remove) {
  const auto file = log::File::Open(name);
  if (!file.ok()) return file.status();
  if (!file->compressed()) {
    absl::Status status = CheckFinished(name);
    if (!status.ok()) return status;
  }
  const auto size = log::Compact(*file, to);
  if (!size.ok()) return size.status();
  std::printf("%s: %s, was %s\n", to.c_str(), report::Bytes(*size).c_str(),
              report::Bytes(file->size()).c_str());
  return remove ? Remove(*file) : absl::OkStatus();
}

}  // namespace

int CompactMain(const std::vector<std::string>& words) {
  const auto arguments = ParseArguments(words);
  if (!arguments.ok()) {
    std::fprintf(stderr, "dstrace compact: %s\n%s",
                 std::string(arguments.status().message()).c_str(), kUsage);
    return 2;
  }
  if (arguments->help) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  int exit_status = 0;
  for (const std::string& file : arguments->files) {
    const std::string to =
        arguments->output.empty() ? file + ".zst" : arguments->output;
    const absl::Status status = CompactOne(file, to, arguments->remove);
    if (status.ok()) continue;
    exit_status = 1;
    std::fprintf(stderr, "dstrace compact: %s\n",
                 std::string(status.message()).c_str());
  }
  return exit_status;
}

}  // namespace dstrace::cli
