// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PROTO_WIRE_LAYOUT_H_
#define DSTRACE_PROTO_WIRE_LAYOUT_H_

// Where the bytes of a chunk are. Pictures in proto/FORMAT.md.
//
// A chunk is a protobuf field of fixed size whose tags and values fall on
// aligned words, so that one store opens it and one store commits a record.

#include <cstddef>
#include <cstdint>

#include "proto/wire/encoder.h"

namespace dstrace::wire {

inline constexpr uint32_t kFormatVersion = 1;
inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kChunkBytes = 65536;

// Offsets from the start of a chunk.
inline constexpr size_t kChunkBody = 6;  // after tag and 5-byte length
inline constexpr size_t kCommittedOffset = 8;
inline constexpr size_t kThreadOffset = 13;
inline constexpr size_t kSequenceOffset = 18;
inline constexpr size_t kFirstTimeOffset = 23;
inline constexpr size_t kLastTimeOffset = 32;
inline constexpr size_t kPayloadOffset = 46;
inline constexpr size_t kRecentOffset = kChunkBytes - 2048;
inline constexpr size_t kPayloadBytes = kRecentOffset - 4 - kPayloadOffset;

// A committed count and a time are stored with single aligned stores.
static_assert(kCommittedOffset % 4 == 0);
static_assert(kLastTimeOffset % 8 == 0);

// A tensor's record as it came: the last ones of a chunk, not yet part of its
// payload. Those count whose `tag` is `committed` + 1: when the payload takes
// them over, the store that commits it makes them void. They begin at any slot.
struct RecentTensor {
  uint64_t time;  // nanoseconds of CLOCK_MONOTONIC
  uint64_t address;
  int64_t size;  // bytes; negative: freed
  // Stored at once, and last: stack, device << 32, tag << 48.
  uint64_t stack_device_tag;
};
static_assert(sizeof(RecentTensor) == 32);
inline constexpr size_t kRecentBytes = kChunkBytes - kRecentOffset;
inline constexpr size_t kRecentTensors = kRecentBytes / sizeof(RecentTensor);
// The first slot is found from any other, and no slot lies in two cache lines.
static_assert(kRecentOffset % kRecentBytes == 0);
static_assert(kPayloadBytes < 0xffff, "a tag has 16 bits");

constexpr uint64_t RecentWord(uint32_t stack, uint32_t device, uint32_t tag) {
  return stack | uint64_t{device & 0xffff} << 32 | uint64_t{tag} << 48;
}
constexpr uint32_t RecentStack(uint64_t word) {
  return static_cast<uint32_t>(word);
}
constexpr uint32_t RecentDevice(uint64_t word) {
  return static_cast<uint32_t>(word >> 32 & 0xffff);
}
constexpr uint32_t RecentTag(uint64_t word) {
  return static_cast<uint32_t>(word >> 48);
}

// Fields of TraceFile and Chunk.
inline constexpr uint32_t kTraceFileChunk = 1;
inline constexpr uint32_t kTraceFileReserved = 15;
inline constexpr uint32_t kChunkCommitted = 16;
inline constexpr uint32_t kChunkThread = 2;
inline constexpr uint32_t kChunkSequence = 3;
inline constexpr uint32_t kChunkFirstTime = 4;
inline constexpr uint32_t kChunkLastTime = 5;
inline constexpr uint32_t kChunkPayload = 6;
inline constexpr uint32_t kChunkRecent = 17;

// Fields of Records.
enum class RecordField : uint32_t {
  kTensorAlloc = 1,
  kTensorFree = 2,
  kDeviceEvent = 3,
  kMemorySample = 4,
  kStack = 5,
  kFrame = 6,
  kModule = 7,
  kThread = 8,
  kTorchTotals = 9,
  kOutOfMemory = 10,
  kLoss = 11,
  kHeader = 12,
  kString = 13,
  kGpu = 14,
  kStreamEvent = 15,
  kProperty = 16,
  kMark = 17,
  kEnd = 18,
  kPadding = 19,
  kCuptiTotals = 20,
  kCheckpoint = 21,
  kLiveTensor = 22,
  kLiveEvent = 23,
  kLiveSample = 24,
  kLiveTotals = 25,
  kHistory = 26,
};

// The first eight bytes of a page that holds no chunk yet: a `reserved` field
// that fills the page.
constexpr void PutReservedPage(uint8_t* page) {
  page[0] = MakeTag(kTraceFileReserved, WireType::kLen);
  PutPaddedVarint(page + 1, kPageBytes - 6, 5);
}

namespace internal {

constexpr uint64_t ChunkFirstWord(uint32_t field) {
  uint8_t bytes[8] = {};
  bytes[0] = static_cast<uint8_t>(MakeTag(field, WireType::kLen));
  PutPaddedVarint(bytes + 1, kChunkBytes - kChunkBody, 5);
  // Field 16, fixed32: a two-byte tag, which puts the value at offset 8.
  bytes[6] = (MakeTag(kChunkCommitted, WireType::kFixed32) & 0x7f) | 0x80;
  bytes[7] = MakeTag(kChunkCommitted, WireType::kFixed32) >> 7;
  uint64_t word = 0;
  for (int i = 7; i >= 0; --i) word = word << 8 | bytes[i];
  return word;
}

}  // namespace internal

// The first eight bytes of a chunk, which turn reserved pages into it.
constexpr uint64_t ChunkOpeningWord() {
  return internal::ChunkFirstWord(kTraceFileChunk);
}

// The same for a chunk that is given up: one `reserved` field of its length.
constexpr uint64_t ReservedChunkWord() {
  return internal::ChunkFirstWord(kTraceFileReserved);
}

// Everything of a chunk's header after the opening word.
inline void PutChunkHeader(uint8_t* chunk, uint32_t thread, uint32_t sequence,
                           uint64_t first_time) noexcept {
  const auto put = [chunk](size_t offset, const void* from, size_t size) {
    std::memcpy(chunk + offset, from, size);
  };
  const uint32_t committed = 0;
  const uint64_t last_time = 0;
  put(kCommittedOffset, &committed, 4);
  chunk[kThreadOffset - 1] = MakeTag(kChunkThread, WireType::kFixed32);
  put(kThreadOffset, &thread, 4);
  chunk[kSequenceOffset - 1] = MakeTag(kChunkSequence, WireType::kFixed32);
  put(kSequenceOffset, &sequence, 4);
  chunk[kFirstTimeOffset - 1] = MakeTag(kChunkFirstTime, WireType::kFixed64);
  put(kFirstTimeOffset, &first_time, 8);
  chunk[kLastTimeOffset - 1] = MakeTag(kChunkLastTime, WireType::kFixed64);
  put(kLastTimeOffset, &last_time, 8);
  chunk[kPayloadOffset - 6] = MakeTag(kChunkPayload, WireType::kLen);
  PutPaddedVarint(chunk + kPayloadOffset - 5, kPayloadBytes, 5);
  uint8_t* const recent = chunk + kRecentOffset;
  PutPaddedVarint(recent - 4, MakeTag(kChunkRecent, WireType::kLen), 2);
  PutPaddedVarint(recent - 2, kRecentBytes, 2);
  std::memset(recent, 0, kRecentBytes);
}

}  // namespace dstrace::wire

#endif  // DSTRACE_PROTO_WIRE_LAYOUT_H_
