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
    std::unique_ptr<ChunkDecoder> decoder;
  };
  // For a heap whose front is the earliest event.
  static bool Later(const Cursor& a, const Cursor& b) {
    return a.time != b.time ? a.time > b.time : a.rank > b.rank;
  }

  absl::Status OpenNext();
  absl::Status OpenDue();
  // Delivers from the front cursor as long as it stays the earliest one.
  absl::Status Drain();
  absl::StatusOr<bool> Advance(ChunkDecoder& decoder) const;
  // Whether an event at this place in order may be delivered now.
  [[nodiscard]] bool IsFirst(uint64_t time, size_t rank) const;

  const File& file_;
  const std::vector<ChunkInfo>& chunks_;
  const DecodeContext& context_;
  model::EventVisitor& visitor_;
  std::vector<Cursor> heap_;
  std::vector<std::unique_ptr<ChunkDecoder>> spare_;
  size_t next_ = 0;  // the first chunk not yet opened
  bool stopped_ = false;
};

absl::Status Merger::Run() {
  while (!stopped_) {
    if (const absl::Status status = OpenDue(); !status.ok()) return status;
    if (heap_.empty()) break;
    if (const absl::Status status = Drain(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Merger::OpenDue() {
  while (next_ < chunks_.size() &&
         (heap_.empty() || chunks_[next_].first_time - context_.start_time <=
                               heap_.front().time)) {
    if (const absl::Status status = OpenNext(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Merger::OpenNext() {
  Cursor cursor;
  cursor.rank = next_++;
  if (spare_.empty()) {
    cursor.decoder = std::make_unique<ChunkDecoder>(context_);
  } else {
    cursor.decoder = std::move(spare_.back());
    spare_.pop_back();
  }
  const absl::Status status =
      LoadChunk(file_, chunks_[cursor.rank], *cursor.decoder);
  if (!status.ok()) return status;
  const auto more = Advance(*cursor.decoder);
  if (!more.ok()) return more.status();
  if (!*more) {
    spare_.push_back(std::move(cursor.decoder));
    return absl::OkStatus();
  }
  cursor.time = cursor.decoder->time();
  heap_.push_back(std::move(cursor));
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

bool Merger::IsFirst(uint64_t time, size_t rank) const {
  if (!heap_.empty()) {
    const Cursor& front = heap_.front();
    if (time > front.time || (time == front.time && rank > front.rank)) {
      return false;
    }
  }
  return next_ == chunks_.size() ||
         time < chunks_[next_].first_time - context_.start_time;
}

absl::Status Merger::Drain() {
  std::pop_heap(heap_.begin(), heap_.end(), Later);
  Cursor cursor = std::move(heap_.back());
  heap_.pop_back();
  do {
    if (!cursor.decoder->Deliver(visitor_)) {
      stopped_ = true;
      return absl::OkStatus();
    }
    const auto more = Advance(*cursor.decoder);
    if (!more.ok()) return more.status();
    if (!*more) {
      spare_.push_back(std::move(cursor.decoder));
      return absl::OkStatus();
    }
    cursor.time = cursor.decoder->time();
  } while (IsFirst(cursor.time, cursor.rank));
  heap_.push_back(std::move(cursor));
  std::push_heap(heap_.begin(), heap_.end(), Later);
  return absl::OkStatus();
}

}  // namespace

absl::Status MergeChunks(const File& file, const std::vector<ChunkInfo>& chunks,
                         const DecodeContext& context,
                         model::EventVisitor& visitor) {
  return Merger(file, chunks, context, visitor).Run();
}

}  // namespace dstrace::log
