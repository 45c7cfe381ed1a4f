// SPDX-License-Identifier: Apache-2.0
//
// "dstrace compact run.pb": makes run.pb.zst of a finished trace. Not
// thread-safe (reads and writes files, writes to stdout).
#ifndef DSTRACE_ANALYZER_CLI_COMPACT_H_
#define DSTRACE_ANALYZER_CLI_COMPACT_H_

#include <string>
#include <vector>

namespace dstrace::cli {

// `words` are those after the command's name. Returns the exit status: 0, 1
// when a file was left as it is (one line on stderr says why; the others are
// compacted), 2 for bad usage.
int CompactMain(const std::vector<std::string>& words);

}  // namespace dstrace::cli

#endif  // DSTRACE_ANALYZER_CLI_COMPACT_H_
