// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_CHUNK_INDEX_H_
#define DSTRACE_ANALYZER_LOG_CHUNK_INDEX_H_

// Where the chunks of a trace file are.
//
//   | chunk | reserved | reserved | chunk | ... damaged ... | chunk | zeros
//
// The file is one protobuf message; the scan walks its top-level fields, of
// any length. Where that breaks, it goes on at the next page that begins like
// a page of ours, and notes what it skipped.
//
// A writer may be at work. It fills an open chunk, writes it to another place
// and begins the open one anew. So an open chunk is read as a whole, here, and
// its place is looked at until nothing changes meanwhile. Without a limit those
// places are filled one after the other, behind all that were; so the scan goes
// on from the first free one it passed until nothing is filled any more. Chunks
// of one sequence number are one chunk, found while or after it was moved. With
// a limit, old places are written again, in any order: what is lost to that is
// noted when a chunk is loaded, but its program should not run.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analyzer/log/file.h"

namespace dstrace::log {

// A record of a tensor that is in the file and not yet in the payload.
struct RecentTensor {
  uint64_t time = 0;  // nanoseconds, CLOCK_MONOTONIC
  uint64_t address = 0;
  int64_t size = 0;    // negative: freed
  uint32_t stack = 0;  // of an allocation
  uint32_t torch_device = 0;
};

struct ChunkInfo {
  uint64_t offset = 0;          // of the chunk's tag, in the file
  uint64_t payload_offset = 0;  // of the payload's first byte, in the file
  uint32_t committed = 0;       // bytes of payload that can be trusted
  uint32_t thread = 0;
  uint32_t sequence = 0;
  uint64_t first_time = 0;           // nanoseconds, CLOCK_MONOTONIC
  uint64_t last_time = 0;            // 0: still open
  uint64_t events = 0;               // known after a first decode
  std::vector<RecentTensor> recent;  // they follow the committed bytes
  // The payload of a chunk that was open and may be begun anew; null: read it
  // from the file.
  std::shared_ptr<const std::vector<uint8_t>> payload;
};

struct ChunkIndex {
  std::vector<ChunkInfo> chunks;   // by sequence: in the order of opening
  std::vector<std::string> notes;  // what was skipped or cut off, with offsets
  uint64_t file_bytes = 0;         // as far as it was followed
};

// Errors: not a trace, empty, no complete chunk header, unreadable.
absl::StatusOr<ChunkIndex> IndexChunks(const File& file);

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_CHUNK_INDEX_H_
