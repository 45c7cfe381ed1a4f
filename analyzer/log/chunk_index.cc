// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/chunk_index.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/log/chunk_parser.h"
#include "analyzer/log/varint.h"

namespace dstrace::log {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kPlaceBytes = 65536;  // chunks begin at multiples of it
constexpr int kMaxRounds = 1000;         // of following a writer
// A file whose start is not ours is searched this far for a chunk, so that a
// damaged first page is told from a foreign file without reading all of it.
constexpr uint64_t kForeignSearchBytes = 1 << 20;

constexpr uint8_t kChunkTag = 1 << 3 | kWireLen;
constexpr uint8_t kReservedTag = 15 << 3 | kWireLen;

// What the writer puts at the start of a page that holds nothing yet.
constexpr std::array<uint8_t, 6> kReservedStart = {0x7a, 0xfa, 0x9f,
                                                   0x80, 0x80, 0x00};

template <size_t kSize>
bool StartsWith(std::span<const uint8_t> bytes,
                const std::array<uint8_t, kSize>& start) {
  return bytes.size() >= kSize &&
         std::equal(start.begin(), start.end(), bytes.begin());
}

class Scanner {
 public:
  explicit Scanner(const File& file)
      : file_(file), window_(file), parser_(file), size_(file.size()) {}

  absl::StatusOr<ChunkIndex> Run();

 private:
  absl::Status ScanOne();
  absl::Status FollowWriter();
  void Pass(bool by_pages);
  absl::Status ScanChunk(uint64_t body, uint64_t length, bool ours);
  void Finish(ChunkInfo chunk);
  void SortAndMerge();
  absl::Status Resync(const std::string& why);
  absl::StatusOr<std::optional<uint64_t>> FindStart(uint64_t from);
  absl::Status NothingFound();

  const File& file_;
  Window window_;
  ChunkParser parser_;
  uint64_t size_;  // of what is looked at; grows with the file
  uint64_t at_ = 0;
  std::optional<uint64_t> passed_;  // the first place without a chunk
  size_t passed_notes_ = 0;         // how many notes there were before it
  uint64_t reserved_until_ = 0;     // the end of a place of reserved pages
  int rounds_ = 0;
  ChunkIndex index_;
  bool recognized_ = false;  // something of ours has been seen
};

absl::StatusOr<ChunkIndex> Scanner::Run() {
  if (size_ == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.path(), ": byte 0: the file is empty"));
  }
  while (at_ < size_) {
    if (const absl::Status status = ScanOne(); !status.ok()) return status;
    if (at_ < size_) continue;
    if (const absl::Status status = FollowWriter(); !status.ok()) return status;
  }
  if (index_.chunks.empty()) return NothingFound();
  SortAndMerge();
  index_.file_bytes = size_;
  return std::move(index_);
}

// At the end: the file may have become longer, and places behind us are filled
// one after the other.
absl::Status Scanner::FollowWriter() {
  size_ = std::max(size_, file_.CurrentSize());
  if (!passed_.has_value()) return absl::OkStatus();
  const auto peeked = window_.At(*passed_, size_);
  if (!peeked.ok()) return peeked.status();
  if (!StartsWith(*peeked, kChunkStart)) return absl::OkStatus();
  if (++rounds_ > kMaxRounds) {
    index_.notes.push_back(absl::StrFormat(
        "byte %d: written faster than it can be read: read a copy", *passed_));
    return absl::OkStatus();
  }
  // Anew, and what was found behind it too.
  at_ = *passed_;
  std::erase_if(index_.chunks,
                [&](const ChunkInfo& chunk) { return chunk.offset >= at_; });
  index_.notes.resize(passed_notes_);
  passed_.reset();
  reserved_until_ = 0;
  return absl::OkStatus();
}

// A place that holds no chunk; `by_pages`: each of its pages says so.
void Scanner::Pass(bool by_pages) {
  if (by_pages) reserved_until_ = at_ + kPlaceBytes;
  if (passed_.has_value()) return;
  passed_ = at_;
  passed_notes_ = index_.notes.size();
}

// Of two of one number one is the copy of the other, made or being made.
void Scanner::SortAndMerge() {
  const auto holds = [](const ChunkInfo& chunk) {
    return std::tuple(chunk.committed, chunk.last_time, chunk.recent.size());
  };
  std::stable_sort(index_.chunks.begin(), index_.chunks.end(),
                   [](const ChunkInfo& a, const ChunkInfo& b) {
                     return a.sequence < b.sequence;
                   });
  std::vector<ChunkInfo> merged;
  for (ChunkInfo& chunk : index_.chunks) {
    const bool again = !merged.empty() &&
                       merged.back().sequence == chunk.sequence &&
                       merged.back().thread == chunk.thread &&
                       merged.back().first_time == chunk.first_time;
    if (!again) {
      merged.push_back(std::move(chunk));
    } else if (holds(chunk) > holds(merged.back())) {
      merged.back() = std::move(chunk);
    }
  }
  index_.chunks = std::move(merged);
}

// Consumes one top-level field, or skips damage.
absl::Status Scanner::ScanOne() {
  const auto peeked = window_.At(at_, size_);
  if (!peeked.ok()) return peeked.status();
  const uint8_t* const begin = peeked->data();
  const uint8_t* const end = begin + peeked->size();
  if (begin == end) {
    at_ = size_;
    return absl::OkStatus();
  }
  // The other pages of a reserved place may be written at this instant: what
  // they begin with then may look like anything.
  if (at_ < reserved_until_ && !StartsWith(*peeked, kReservedStart) &&
      !StartsWith(*peeked, kChunkStart)) {
    at_ = reserved_until_;
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
    const bool ours = StartsWith(*peeked, kReservedStart);
    recognized_ |= ours;
    if (at_ % kPlaceBytes == 0) Pass(ours);
    at_ = body_offset + length;
    return absl::OkStatus();
  }
  return ScanChunk(body_offset, length, StartsWith(*peeked, kChunkStart));
}

absl::Status Scanner::ScanChunk(uint64_t body, uint64_t length, bool ours) {
  recognized_ |= ours;
  ChunkInfo chunk;
  const auto outcome = ours
                           ? parser_.ParseLive(at_, body, length, size_, &chunk)
                           : parser_.Parse(at_, body, length, size_, &chunk);
  if (!outcome.ok()) return outcome.status();
  switch (*outcome) {
    case ChunkParser::Outcome::kOk:
      Finish(std::move(chunk));
      at_ = body + length;
      return absl::OkStatus();
    case ChunkParser::Outcome::kChanged:
      return absl::OkStatus();
    case ChunkParser::Outcome::kCutOff:
      if (!ours) break;
      index_.notes.push_back(absl::StrFormat(
          "byte %d: the file ends inside the header of a chunk", at_));
      at_ = size_;
      return absl::OkStatus();
    case ChunkParser::Outcome::kDamaged:
      break;
  }
  return Resync("the header of a chunk is damaged");
}

// Trusts no more of the payload than there is.
void Scanner::Finish(ChunkInfo chunk) {
  recognized_ = true;
  if (chunk.committed > parser_.payload_length()) {
    index_.notes.push_back(absl::StrFormat(
        "byte %d: a chunk of %d bytes claims %d committed bytes; it is read "
        "up to its first damaged record",
        chunk.offset, parser_.payload_length(), chunk.committed));
    chunk.committed = static_cast<uint32_t>(parser_.payload_length());
  }
  const uint64_t there =
      size_ > chunk.payload_offset ? size_ - chunk.payload_offset : 0;
  if (chunk.committed > there) {
    index_.notes.push_back(
        absl::StrFormat("byte %d: truncated: the chunk at byte %d has %d "
                        "committed bytes, the file %d of them",
                        size_, chunk.offset, chunk.committed, there));
    chunk.committed = static_cast<uint32_t>(there);
  }
  index_.chunks.push_back(std::move(chunk));
}

// Goes on at the next page that begins like one of ours.
absl::Status Scanner::Resync(const std::string& why) {
  const auto peeked = window_.At(at_, size_);
  if (!peeked.ok()) return peeked.status();
  const bool zeros = std::all_of(peeked->begin(), peeked->end(),
                                 [](uint8_t byte) { return byte == 0; });
  const uint64_t from = (at_ / kPageBytes + 1) * kPageBytes;
  const auto next = FindStart(from);
  if (!next.ok()) return next.status();
  const uint64_t to = next->value_or(size_);
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
  const uint64_t limit = all ? size_ : std::min(size_, kForeignSearchBytes);
  for (uint64_t page = from; page < limit; page += kPageBytes) {
    const auto peeked = window_.At(page, size_);
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
      file_.Where(size_), ": the trace ends before its first chunk"));
}

}  // namespace

absl::StatusOr<ChunkIndex> IndexChunks(const File& file) {
  return Scanner(file).Run();
}

}  // namespace dstrace::log
