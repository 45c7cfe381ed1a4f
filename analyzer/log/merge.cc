// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/merge.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analyzer/log/trace_reader.h"

namespace dstrace::log {
namespace {

class Merger {
 public:
  Merger(const File& file, const std::vector<ChunkInfo>& chunks,
         const DecodeContext& context, model::EventVisitor& visitor)
      : file_(file), chunks_(chunks), context_(context), visitor_(visitor) {}

  absl::Status Run();

 private:
  struct Cursor {
    uint64_t time = 0;
    size_t rank = 0;  // position in `chunks_`; breaks ties
    ChunkDecoder* decoder = nullptr;

    [[nodiscard]] bool Before(const Cursor& other) const {
      return time != other.time ? time < other.time : rank < other.rank;
    }
  };
  // For a heap whose front is the earliest event.
  static bool Later(const Cursor& a, const Cursor& b) { return b.Before(a); }

  absl::Status OpenNext();
  absl::Status OpenDue();
  // Delivers from the front cursor as long as it stays the earliest one.
  absl::Status Drain();
  absl::StatusOr<bool> Advance(ChunkDecoder& decoder) const;
  // Whether the front cursor still is the earliest one of all.
  [[nodiscard]] bool FrontIsFirst() const;
  // Restores the heap after the front cursor moved on.
  void SinkFront();
  void DropFront();

  const File& file_;
  const std::vector<ChunkInfo>& chunks_;
  const DecodeContext& context_;
  model::EventVisitor& visitor_;
  std::vector<Cursor> heap_;
  std::vector<std::unique_ptr<ChunkDecoder>> decoders_;
  std::vector<ChunkDecoder*> spare_;  // those that are in no cursor
  size_t next_ = 0;                   // the first chunk not yet opened
  bool stopped_ = false;
};

absl::Status Merger::Run() {
  while (!stopped_) {
    if (absl::Status status = OpenDue(); !status.ok()) return status;
    if (heap_.empty()) break;
    if (absl::Status status = Drain(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Merger::OpenDue() {
  while (next_ < chunks_.size() &&
         (heap_.empty() || chunks_[next_].first_time - context_.start_time <=
                               heap_.front().time)) {
    if (absl::Status status = OpenNext(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Merger::OpenNext() {
  if (spare_.empty()) {
    decoders_.push_back(std::make_unique<ChunkDecoder>(context_));
    spare_.push_back(decoders_.back().get());
  }
  Cursor cursor;
  cursor.rank = next_++;
  cursor.decoder = spare_.back();
  absl::Status status = LoadChunk(file_, chunks_[cursor.rank], *cursor.decoder);
  if (!status.ok()) return status;
  const auto more = Advance(*cursor.decoder);
  if (!more.ok()) return more.status();
  if (!*more) return absl::OkStatus();
  spare_.pop_back();
  cursor.time = cursor.decoder->time();
  heap_.push_back(cursor);
  std::push_heap(heap_.begin(), heap_.end(), Later);
  return absl::OkStatus();
}

absl::StatusOr<bool> Merger::Advance(ChunkDecoder& decoder) const {
  const ChunkDecoder::Result result = decoder.Next();
  if (result != ChunkDecoder::Result::kDamaged) {
    return result == ChunkDecoder::Result::kEvent;
  }
  // The first pass had decoded it.
  return absl::DataLossError(absl::StrCat(
      file_.Where(decoder.chunk().payload_offset + decoder.position()),
      ": the file changed while it was being read"));
}

bool Merger::FrontIsFirst() const {
  const Cursor& front = heap_.front();
  // The second earliest is one of the front's two children.
  for (size_t child = 1; child < std::min<size_t>(heap_.size(), 3); ++child) {
    if (heap_[child].Before(front)) return false;
  }
  return next_ == chunks_.size() ||
         front.time < chunks_[next_].first_time - context_.start_time;
}

void Merger::SinkFront() {
  const Cursor moved = heap_.front();
  size_t hole = 0;
  for (;;) {
    size_t child = 2 * hole + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1].Before(heap_[child])) {
      ++child;
    }
    if (!heap_[child].Before(moved)) break;
    heap_[hole] = heap_[child];
    hole = child;
  }
  heap_[hole] = moved;
}

void Merger::DropFront() {
  spare_.push_back(heap_.front().decoder);
  heap_.front() = heap_.back();
  heap_.pop_back();
  if (!heap_.empty()) SinkFront();
}

absl::Status Merger::Drain() {
  do {
    Cursor& front = heap_.front();
    if (!front.decoder->Deliver(visitor_)) {
      stopped_ = true;
      return absl::OkStatus();
    }
    const auto more = Advance(*front.decoder);
    if (!more.ok()) return more.status();
    if (!*more) {
      DropFront();
      return absl::OkStatus();
    }
    front.time = front.decoder->time();
  } while (FrontIsFirst());
  SinkFront();
  return absl::OkStatus();
}

}  // namespace

absl::Status MergeChunks(const File& file, const std::vector<ChunkInfo>& chunks,
                         const DecodeContext& context,
                         model::EventVisitor& visitor) {
  return Merger(file, chunks, context, visitor).Run();
}

}  // namespace dstrace::log
