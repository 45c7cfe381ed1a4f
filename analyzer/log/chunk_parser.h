// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_CHUNK_PARSER_H_
#define DSTRACE_ANALYZER_LOG_CHUNK_PARSER_H_

// Reads the header of one chunk, its recent records and, of an open chunk, its
// payload, while the program that writes them may be at work.
//
// Guarantee: what kOk gives is of one chunk, as it was at one instant after the
// call began. Any bytes may be given. Not thread-safe.

#include <array>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "analyzer/log/chunk_index.h"
#include "analyzer/log/file.h"
#include "analyzer/log/varint.h"

namespace dstrace::log {

// What the writer puts at the start of a chunk: 65 536 bytes, with the
// `committed` field first.
inline constexpr std::array<uint8_t, 8> kChunkStart = {0x0a, 0xfa, 0xff, 0x83,
                                                       0x80, 0x00, 0x85, 0x01};

// Of the value of `sequence` in it.
inline constexpr size_t kSequenceOffset = 18;

// Whether a chunk that begins with kChunkStart is at `offset`, and its number.
absl::StatusOr<bool> ChunkBeginsAt(const File& file, uint64_t offset,
                                   uint32_t* sequence);

// The next bytes of a file, at most 64.
class Window {
 public:
  explicit Window(const File& file) : file_(file) {}
  // From `offset` on, none at or behind `end`. Valid until the next call.
  absl::StatusOr<std::span<const uint8_t>> At(uint64_t offset, uint64_t end);

 private:
  const File& file_;
  std::array<uint8_t, 64> bytes_{};
};

class ChunkParser {
 public:
  enum class Outcome {
    kOk,
    kDamaged,
    kCutOff,   // the file ends inside the header
    kChanged,  // another chunk or none begins there now; look again
  };

  explicit ChunkParser(const File& file) : file_(file), window_(file) {}

  // The chunk whose tag is at `offset` and whose body has `length` bytes from
  // `body` on; nothing from `file_end` on is looked at.
  absl::StatusOr<Outcome> Parse(uint64_t offset, uint64_t body, uint64_t length,
                                uint64_t file_end, ChunkInfo* chunk);
  // The same for one that begins with kChunkStart: it may be begun anew at any
  // time.
  absl::StatusOr<Outcome> ParseLive(uint64_t offset, uint64_t body,
                                    uint64_t length, uint64_t file_end,
                                    ChunkInfo* chunk);

  // Bytes, of the last chunk.
  [[nodiscard]] uint64_t payload_length() const { return payload_length_; }

 private:
  absl::StatusOr<Outcome> ParseField(uint64_t at, uint64_t end,
                                     ChunkInfo* chunk, uint64_t* next);
  void TakeScalar(const Field& field, ChunkInfo* chunk);
  absl::Status ReadRecent(ChunkInfo* chunk);
  absl::Status ReadPayload(ChunkInfo* chunk);

  const File& file_;
  Window window_;
  uint64_t end_ = 0;
  // Of the chunk at hand.
  bool has_committed_ = false;
  bool has_payload_ = false;
  uint64_t payload_length_ = 0;
  uint64_t committed_offset_ = 0;
  uint64_t recent_offset_ = 0;
  uint64_t recent_length_ = 0;
};

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_CHUNK_PARSER_H_
