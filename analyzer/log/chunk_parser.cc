// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/chunk_parser.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace dstrace::log {
namespace {

enum ChunkField : uint32_t {
  kThread = 2,
  kSequence = 3,
  kFirstTime = 4,
  kLastTime = 5,
  kPayload = 6,
  kCommitted = 16,
  kRecent = 17,
};

// A slot of `recent`: time, address, size, and a word of stack (32 bits),
// device (16) and tag (16).
constexpr size_t kRecentSlotBytes = 32;
constexpr size_t kMaxRecentBytes = 4096;

// Later formats may add fields above. A lower number is a neighbour of the
// chunk that a damaged length has made part of it.
constexpr bool MayBeInChunk(uint64_t field) {
  return (field >= kThread && field <= kPayload) || field >= kCommitted;
}

// The slots that carry the tag of `committed`: one row of them.
std::vector<RecentTensor> ParseRecent(std::span<const uint8_t> slots,
                                      uint32_t committed) {
  std::vector<RecentTensor> found;
  for (size_t at = 0; at + kRecentSlotBytes <= slots.size();
       at += kRecentSlotBytes) {
    std::array<uint64_t, 4> words{};
    std::memcpy(words.data(), slots.data() + at, sizeof words);
    if (words[3] >> 48 != uint64_t{committed} + 1) {
      if (found.empty()) continue;
      break;
    }
    found.push_back(
        {.time = words[0],
         .address = words[1],
         .size = static_cast<int64_t>(words[2]),
         .stack = static_cast<uint32_t>(words[3]),
         .torch_device = static_cast<uint32_t>(words[3] >> 32 & 0xffff)});
  }
  return found;
}

}  // namespace

absl::StatusOr<std::span<const uint8_t>> Window::At(uint64_t offset,
                                                    uint64_t end) {
  const uint64_t left = offset < end ? end - offset : 0;
  const auto got = file_.ReadAt(
      offset, std::span(bytes_).first(std::min<uint64_t>(bytes_.size(), left)));
  if (!got.ok()) return got.status();
  return std::span<const uint8_t>(bytes_.data(), *got);
}

absl::StatusOr<ChunkParser::Outcome> ChunkParser::Parse(uint64_t offset,
                                                        uint64_t body,
                                                        uint64_t length,
                                                        uint64_t file_end,
                                                        ChunkInfo* chunk) {
  if (length > UINT32_MAX) return Outcome::kDamaged;
  *chunk = {};
  chunk->offset = offset;
  end_ = file_end;
  has_committed_ = has_payload_ = false;
  recent_length_ = 0;
  const uint64_t end = body + length;
  uint64_t at = body;
  while (at < end && at < end_) {
    auto outcome = ParseField(at, end, chunk, &at);
    if (!outcome.ok() || *outcome != Outcome::kOk) return outcome;
  }
  if (!has_committed_ || !has_payload_) {
    return end > end_ ? Outcome::kCutOff : Outcome::kDamaged;
  }
  const absl::Status status = ReadRecent(chunk);
  if (!status.ok()) return status;
  return Outcome::kOk;
}

// Whether a chunk begins there, and with which number. The writer stores first
// word (void), header, first word. So what is read between two such looks of
// one number is of that chunk.
absl::StatusOr<bool> ChunkBeginsAt(const File& file, uint64_t offset,
                                   uint32_t* sequence) {
  std::array<uint8_t, kChunkStart.size()> first{};
  auto got = file.ReadAt(offset, first);
  if (!got.ok()) return got.status();
  if (first != kChunkStart) return false;
  std::array<uint8_t, sizeof *sequence> bytes{};
  got = file.ReadAt(offset + kSequenceOffset, bytes);
  if (!got.ok()) return got.status();
  std::memcpy(sequence, bytes.data(), sizeof *sequence);
  return true;
}

absl::StatusOr<ChunkParser::Outcome> ChunkParser::ParseLive(uint64_t offset,
                                                            uint64_t body,
                                                            uint64_t length,
                                                            uint64_t file_end,
                                                            ChunkInfo* chunk) {
  std::array<uint32_t, 3> sequence{};
  for (size_t look = 0; look < sequence.size(); ++look) {
    // The first look finds a number, the second that its header is complete.
    if (look == 2) {
      auto outcome = Parse(offset, body, length, file_end, chunk);
      if (!outcome.ok() || *outcome != Outcome::kOk) return outcome;
      const absl::Status status = ReadPayload(chunk);
      if (!status.ok()) return status;
    }
    const auto begins = ChunkBeginsAt(file_, offset, &sequence.at(look));
    if (!begins.ok()) return begins.status();
    if (!*begins || sequence.at(look) != sequence.front()) {
      return Outcome::kChanged;
    }
  }
  return Outcome::kOk;
}

absl::Status ChunkParser::ReadPayload(ChunkInfo* chunk) {
  // The chunk of the process (the first) never moves. What is in it changes in
  // place: with a limit it says where history begins, and that must be read
  // after the history.
  if (chunk->last_time != 0 || chunk->sequence == 0) return absl::OkStatus();
  auto payload = std::make_shared<std::vector<uint8_t>>(
      std::min<uint64_t>(chunk->committed, payload_length_));
  const auto got = file_.ReadAt(chunk->payload_offset, *payload);
  if (!got.ok()) return got.status();
  payload->resize(*got);
  chunk->payload = std::move(payload);
  return absl::OkStatus();
}

// The writer may be taking the slots into the payload, and using them again,
// at this instant: what was read holds if `committed` is what it was.
absl::Status ChunkParser::ReadRecent(ChunkInfo* chunk) {
  constexpr int kAttempts = 4;
  std::vector<uint8_t> slots(
      std::min<uint64_t>(recent_length_, kMaxRecentBytes) / kRecentSlotBytes *
      kRecentSlotBytes);
  for (int i = 0; i < kAttempts && !slots.empty(); ++i) {
    const auto got = file_.ReadAt(recent_offset_, slots);
    if (!got.ok()) return got.status();
    slots.resize(*got / kRecentSlotBytes * kRecentSlotBytes);
    std::array<uint8_t, sizeof(uint32_t)> bytes{};
    const auto again = file_.ReadAt(committed_offset_, bytes);
    if (!again.ok()) return again.status();
    uint32_t committed = 0;
    std::memcpy(&committed, bytes.data(), sizeof committed);
    if (committed == chunk->committed) {
      chunk->recent = ParseRecent(slots, committed);
      return absl::OkStatus();
    }
    chunk->committed = committed;
  }
  return absl::OkStatus();
}

absl::StatusOr<ChunkParser::Outcome> ChunkParser::ParseField(uint64_t at,
                                                             uint64_t end,
                                                             ChunkInfo* chunk,
                                                             uint64_t* next) {
  const auto peeked = window_.At(at, end_);
  if (!peeked.ok()) return peeked.status();
  const uint8_t* const begin = peeked->data();
  const uint8_t* const stop =
      begin + std::min<uint64_t>(peeked->size(), end - at);
  const bool cut = at + peeked->size() >= end_ && end > end_;
  const Outcome bad = cut ? Outcome::kCutOff : Outcome::kDamaged;
  uint64_t tag = 0;
  const uint8_t* const value = ReadVarint(begin, stop, &tag);
  if (value == nullptr) return bad;
  if (!MayBeInChunk(tag >> 3) || tag > UINT32_MAX) return Outcome::kDamaged;
  if ((tag & 7) != kWireLen) {
    Field field;
    if (!ReadField(begin, stop, &field)) return bad;
    TakeScalar(field, chunk);
    if (field.number == kCommitted)
      committed_offset_ =
          at + static_cast<uint64_t>(field.end - begin) - sizeof(uint32_t);
    *next = at + static_cast<uint64_t>(field.end - begin);
    return Outcome::kOk;
  }
  uint64_t length = 0;
  const uint8_t* const data = ReadVarint(value, stop, &length);
  if (data == nullptr) return bad;
  const uint64_t offset = at + static_cast<uint64_t>(data - begin);
  if (length > end - offset) return Outcome::kDamaged;
  if (tag >> 3 == kPayload) {
    has_payload_ = true;
    chunk->payload_offset = offset;
    payload_length_ = length;
  } else if (tag >> 3 == kRecent) {
    recent_offset_ = offset;
    recent_length_ = length;
  }
  *next = offset + length;
  return Outcome::kOk;
}

void ChunkParser::TakeScalar(const Field& field, ChunkInfo* chunk) {
  const auto word = static_cast<uint32_t>(field.value);
  if (field.type == kWireFixed32) {
    if (field.number == kCommitted) {
      chunk->committed = word;
      has_committed_ = true;
    }
    if (field.number == kThread) chunk->thread = word;
    if (field.number == kSequence) chunk->sequence = word;
  } else if (field.type == kWireFixed64) {
    if (field.number == kFirstTime) chunk->first_time = field.value;
    if (field.number == kLastTime) chunk->last_time = field.value;
  }
}

}  // namespace dstrace::log
