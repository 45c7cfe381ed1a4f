// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_TRACE_READER_H_
#define DSTRACE_ANALYZER_LOG_TRACE_READER_H_

// Reads a trace file, also one that is still being written.
//
// Open() indexes the chunks, decodes every record once to learn definitions,
// end and valid prefix, and fixes that state: later growth of the file is not
// seen. Replay() then merges the chunks by time; it holds the chunks that
// overlap in time, never all events.
//
// A damaged or cut-off part costs that part: what is valid is read and facts()
// .notes says what was lost, with byte offsets. A file that is not a trace, or
// of another format version, is an error that names path and byte.
//
// Thread-safety: const members are thread-safe.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "analyzer/log/checkpoint.h"
#include "analyzer/log/chunk_decoder.h"
#include "analyzer/log/chunk_index.h"
#include "analyzer/log/definitions.h"
#include "analyzer/log/file.h"
#include "analyzer/model/events.h"

namespace dstrace::log {

class TraceReader : public model::EventSource {
 public:
  static absl::StatusOr<std::unique_ptr<TraceReader>> Open(
      const std::string& path);

  [[nodiscard]] const model::TraceFacts& facts() const override {
    return facts_;
  }
  [[nodiscard]] model::TraceFacts ReleaseFacts() override {
    return std::move(facts_);
  }
  // Errors: the file became unreadable or was changed under us.
  absl::Status Replay(model::EventVisitor& visitor) const override;

  // Chunks in order of time, trimmed to what decodes.
  [[nodiscard]] const std::vector<ChunkInfo>& chunks() const { return chunks_; }

 private:
  struct Survey;

  explicit TraceReader(File file);
  absl::Status Load();
  absl::Status SurveyChunk(ChunkDecoder& decoder, ChunkInfo& chunk,
                           Survey& survey);
  absl::Status CheckHeader();
  void FillFacts(const Survey& survey);

  File file_;
  Definitions definitions_;
  Checkpoint checkpoint_;
  LiveEvents live_;  // at the start of the history
  std::vector<ChunkInfo> chunks_;
  model::TraceFacts facts_;
  uint64_t start_time_ = 0;  // CLOCK_MONOTONIC
};

// Reads the trusted part of a chunk's payload into `decoder` and begins it.
// kDataLoss: the file is shorter than it was.
absl::Status LoadChunk(const File& file, const ChunkInfo& chunk,
                       ChunkDecoder& decoder);

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_TRACE_READER_H_
