// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_COMPACT_H_
#define DSTRACE_ANALYZER_LOG_COMPACT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "analyzer/log/file.h"

namespace dstrace::log {

// Writes `from` compressed to `to`: byte for byte what it is, as zstd frames
// of 4 MiB each with a checksum, so that damage costs one of them. Its size is
// returned.
//
// `to` comes to be complete or not at all (a file beside it is written, read
// back, compared with `from` and renamed), never in place of another file, and
// gets the permissions and the time of `from`. Needs 12 MiB, however long the
// file is.
//
// Errors name the file: `to` exists or cannot be written, `from` is compressed
// already, larger than Unpack() takes, or changed meanwhile.
absl::StatusOr<uint64_t> Compact(const File& from, const std::string& to);

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_COMPACT_H_
