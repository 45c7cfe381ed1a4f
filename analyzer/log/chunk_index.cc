// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/chunk_index.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/log/varint.h"

namespace dstrace::log {
namespace {

constexpr uint64_t kPageBytes = 4096;
// A file whose start is not ours is searched this far for a chunk, so that a
// damaged first page is told from a foreign file without reading all of it.
constexpr uint64_t kForeignSearchBytes = 1 << 20;

constexpr uint8_t kChunkTag = 1 << 3 | kWireLen;
constexpr uint8_t kReservedTag = 15 << 3 | kWireLen;

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

// What the writer puts at the start of each page it starts something on:
// a chunk of 65 536 bytes with its `committed` field, or a reserved page.
constexpr std::array<uint8_t, 8> kChunkStart = {0x0a, 0xfa, 0xff, 0x83,
                                                0x80, 0x00, 0x85, 0x01};
constexpr std::array<uint8_t, 6> kReservedStart = {0x7a, 0xfa, 0x9f,
                                                   0x80, 0x80, 0x00};

// Later formats may add fields above. A lower number is a neighbour of the
// chunk that a damaged length has made part of it.
constexpr bool MayBeInChunk(uint64_t field) {
  return (field >= kThread && field <= kPayload) || field >= kCommitted;
}

template <size_t kSize>
bool StartsWith(std::span<const uint8_t> bytes,
                const std::array<uint8_t, kSize>& start) {
  return bytes.size() >= kSize &&
         std::equal(start.begin(), start.end(), bytes.begin());
}

// The slots that carry the tag of `committed`, up to the first that does not.
std::vector<RecentTensor> ParseRecent(std::span<const uint8_t> slots,
                                      uint32_t committed) {
  std::vector<RecentTensor> found;
  for (size_t at = 0; at + kRecentSlotBytes <= slots.size();
       at += kRecentSlotBytes) {
    std::array<uint64_t, 4> words{};
    std::memcpy(words.data(), slots.data() + at, sizeof words);
    if (words[3] >> 48 != uint64_t{committed} + 1) break;
    found.push_back(
        {.time = words[0],
         .address = words[1],
         .size = static_cast<int64_t>(words[2]),
         .stack = static_cast<uint32_t>(words[3]),
         .torch_device = static_cast<uint32_t>(words[3] >> 32 & 0xffff)});
  }
  return found;
}

class Scanner {
 public:
  explicit Scanner(const File& file) : file_(file) {}

  absl::StatusOr<ChunkIndex> Run();

 private:
  enum class Outcome { kOk, kDamaged, kCutOff };

  // Up to 64 bytes of the file from `offset`.
  absl::StatusOr<std::span<const uint8_t>> Peek(uint64_t offset);
  absl::Status ScanOne();
  absl::StatusOr<Outcome> ScanChunk(uint64_t body, uint64_t length);
  absl::StatusOr<Outcome> ScanField(uint64_t at, uint64_t end, ChunkInfo* chunk,
                                    uint64_t* next);
  void TakeScalar(const Field& field, ChunkInfo* chunk);
  void Finish(const ChunkInfo& found);
  absl::Status ReadRecent(ChunkInfo* chunk);
  absl::Status Resync(const std::string& why);
  absl::StatusOr<std::optional<uint64_t>> FindStart(uint64_t from);
  absl::Status NothingFound();

  const File& file_;
  uint64_t at_ = 0;
  std::array<uint8_t, 64> peeked_{};
  ChunkIndex index_;
  // Of the chunk being scanned.
  bool has_committed_ = false;
  bool has_payload_ = false;
  uint64_t payload_length_ = 0;
  uint64_t committed_offset_ = 0;
  uint64_t recent_offset_ = 0;
  uint64_t recent_length_ = 0;
  bool recognized_ = false;  // something of ours has been seen
};

absl::StatusOr<std::span<const uint8_t>> Scanner::Peek(uint64_t offset) {
  const uint64_t left = offset < file_.size() ? file_.size() - offset : 0;
  const std::span<uint8_t> window(peeked_.data(),
                                  std::min<uint64_t>(peeked_.size(), left));
  const auto got = file_.ReadAt(offset, window);
  if (!got.ok()) return got.status();
  return std::span<const uint8_t>(peeked_.data(), *got);
}

absl::StatusOr<ChunkIndex> Scanner::Run() {
  if (file_.size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.path(), ": byte 0: the file is empty"));
  }
  while (at_ < file_.size()) {
    if (const absl::Status status = ScanOne(); !status.ok()) return status;
  }
  if (index_.chunks.empty()) return NothingFound();
  return std::move(index_);
}

// Consumes one top-level field, or skips damage.
absl::Status Scanner::ScanOne() {
  const auto peeked = Peek(at_);
  if (!peeked.ok()) return peeked.status();
  const uint8_t* const begin = peeked->data();
  const uint8_t* const end = begin + peeked->size();
  if (begin == end) {
    at_ = file_.size();
    return absl::OkStatus();
  }
  const uint8_t tag = *begin;
  if (tag != kChunkTag && tag != kReservedTag) return Resync("no chunk begins");
  uint64_t length = 0;
  const uint8_t* const body = ReadVarint(begin + 1, end, &length);
  if (body == nullptr) return Resync("the length of a chunk is damaged");
  const uint64_t body_offset = at_ + static_cast<uint64_t>(body - begin);
  if (tag == kReservedTag) {
    if (length > UINT32_MAX) return Resync("damaged reserved space");
    recognized_ |= StartsWith(*peeked, kReservedStart);
    at_ = body_offset + length;
    return absl::OkStatus();
  }
  const bool ours = StartsWith(*peeked, kChunkStart);
  recognized_ |= ours;
  const auto outcome = ScanChunk(body_offset, length);
  if (!outcome.ok()) return outcome.status();
  if (*outcome == Outcome::kOk) {
    at_ = body_offset + length;
    return absl::OkStatus();
  }
  if (*outcome == Outcome::kCutOff && ours) {
    index_.notes.push_back(absl::StrFormat(
        "byte %d: the file ends inside the header of a chunk", at_));
    at_ = file_.size();
    return absl::OkStatus();
  }
  return Resync("the header of a chunk is damaged");
}

absl::StatusOr<Scanner::Outcome> Scanner::ScanChunk(uint64_t body,
                                                    uint64_t length) {
  if (length > UINT32_MAX) return Outcome::kDamaged;
  ChunkInfo chunk;
  chunk.offset = at_;
  has_committed_ = has_payload_ = false;
  recent_length_ = 0;
  const uint64_t end = body + length;
  uint64_t at = body;
  while (at < end) {
    if (at >= file_.size()) break;
    const auto outcome = ScanField(at, end, &chunk, &at);
    if (!outcome.ok() || *outcome != Outcome::kOk) return outcome;
  }
  if (!has_committed_ || !has_payload_) {
    return end > file_.size() ? Outcome::kCutOff : Outcome::kDamaged;
  }
  recognized_ = true;
  if (const absl::Status status = ReadRecent(&chunk); !status.ok()) {
    return status;
  }
  Finish(chunk);
  return Outcome::kOk;
}

// The writer may be taking the slots into the payload, and using them again,
// at this instant: what was read holds if `committed` is what it was.
absl::Status Scanner::ReadRecent(ChunkInfo* chunk) {
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

absl::StatusOr<Scanner::Outcome> Scanner::ScanField(uint64_t at, uint64_t end,
                                                    ChunkInfo* chunk,
                                                    uint64_t* next) {
  const auto peeked = Peek(at);
  if (!peeked.ok()) return peeked.status();
  const uint8_t* const begin = peeked->data();
  const uint8_t* const stop =
      begin + std::min<uint64_t>(peeked->size(), end - at);
  const bool cut = at + peeked->size() >= file_.size() && end > file_.size();
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

void Scanner::TakeScalar(const Field& field, ChunkInfo* chunk) {
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

// Trusts no more of the payload than there is.
void Scanner::Finish(const ChunkInfo& found) {
  ChunkInfo chunk = found;
  if (chunk.committed > payload_length_) {
    index_.notes.push_back(absl::StrFormat(
        "byte %d: a chunk of %d bytes claims %d committed bytes; it is read "
        "up to its first damaged record",
        chunk.offset, payload_length_, chunk.committed));
    chunk.committed = static_cast<uint32_t>(payload_length_);
  }
  const uint64_t there = file_.size() > chunk.payload_offset
                             ? file_.size() - chunk.payload_offset
                             : 0;
  if (chunk.committed > there) {
    index_.notes.push_back(
        absl::StrFormat("byte %d: truncated: the chunk at byte %d has %d "
                        "committed bytes, the file %d of them",
                        file_.size(), chunk.offset, chunk.committed, there));
    chunk.committed = static_cast<uint32_t>(there);
  }
  index_.chunks.push_back(chunk);
}

// Goes on at the next page that begins like one of ours.
absl::Status Scanner::Resync(const std::string& why) {
  const auto peeked = Peek(at_);
  if (!peeked.ok()) return peeked.status();
  const bool zeros = std::all_of(peeked->begin(), peeked->end(),
                                 [](uint8_t byte) { return byte == 0; });
  const uint64_t from = (at_ / kPageBytes + 1) * kPageBytes;
  const auto next = FindStart(from);
  if (!next.ok()) return next.status();
  const uint64_t to = next->value_or(file_.size());
  // Zeros up to the end are space that was never used.
  if (recognized_ && (!zeros || next->has_value())) {
    index_.notes.push_back(absl::StrFormat(
        "byte %d: %s; %d bytes skipped", at_,
        zeros ? std::string("zeros where a chunk should begin") : why,
        to - at_));
  }
  at_ = to;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<uint64_t>> Scanner::FindStart(uint64_t from) {
  // Of a damaged compressed file the start may be what is missing.
  const bool all = recognized_ || !file_.notes().empty();
  const uint64_t limit =
      all ? file_.size() : std::min(file_.size(), kForeignSearchBytes);
  for (uint64_t page = from; page < limit; page += kPageBytes) {
    const auto peeked = Peek(page);
    if (!peeked.ok()) return peeked.status();
    if (StartsWith(*peeked, kChunkStart) ||
        StartsWith(*peeked, kReservedStart)) {
      recognized_ = true;
      return std::optional<uint64_t>(page);
    }
  }
  return std::optional<uint64_t>();
}

absl::Status Scanner::NothingFound() {
  if (!recognized_) {
    return absl::InvalidArgumentError(absl::StrCat(
        file_.Where(0), ": not a dstrace trace: no chunk begins here"));
  }
  if (!index_.notes.empty()) {
    return absl::DataLossError(
        absl::StrCat(file_.path(), ": ", index_.notes.front(),
                     "; nothing can be read from the file"));
  }
  return absl::DataLossError(absl::StrCat(
      file_.Where(file_.size()), ": the trace ends before its first chunk"));
}

}  // namespace

absl::StatusOr<ChunkIndex> IndexChunks(const File& file) {
  return Scanner(file).Run();
}

}  // namespace dstrace::log
