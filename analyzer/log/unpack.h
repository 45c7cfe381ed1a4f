// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_UNPACK_H_
#define DSTRACE_ANALYZER_LOG_UNPACK_H_

// A compressed trace: zstd frames one after the other, as Compact() and the
// zstd command write them.
//
//   compressed   | frame | frame | damaged | frame | fra
//   unpacked     | bytes | bytes |  zeros  | bytes | by
//
// A damaged frame is left out whole: without its checksum none of its bytes
// can be trusted. Where it says how long it was, zeros keep its place, so that
// the chunks behind it are where they were.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analyzer/log/file.h"

namespace dstrace::log {

// What is unpacked lies in memory (pages of zeros take none).
inline constexpr uint64_t kMaxUnpackedBytes = 8ULL << 30;

struct Unpacked {
  uint64_t size = 0;
  // What could not be unpacked, with offsets in the compressed file.
  std::vector<std::string> notes;
};

// Whether a file that begins like this is compressed; four bytes are enough.
bool IsCompressed(std::span<const uint8_t> start);

// Writes what `packed` holds to the empty file `to`, which may be sparse.
// Errors name the file and the offset: nothing can be unpacked, more than
// kMaxUnpackedBytes, unreadable, `to` cannot be written.
// Thread-safety: pure but for the two files.
absl::StatusOr<Unpacked> Unpack(const File& packed, int to);

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_UNPACK_H_
