// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/trace_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/log/chunk_parser.h"
#include "analyzer/log/history_filter.h"
#include "analyzer/log/liveness.h"
#include "analyzer/log/merge.h"

namespace dstrace::log {
namespace {

constexpr uint32_t kFormatVersion = 1;
// A badly damaged file must not turn into a book.
constexpr size_t kMaxNotes = 32;

// What the recorder had mapped for itself when the process ended; 0: not told.
uint64_t MappedBytes(const model::Process& process) {
  const auto found = process.properties.find("dstrace.mapped_bytes");
  uint64_t bytes = 0;
  if (found == process.properties.end() ||
      !absl::SimpleAtoi(found->second, &bytes)) {
    return 0;
  }
  return bytes;
}

}  // namespace

// What the first pass over all events learns.
struct TraceReader::Survey : model::EventVisitor {
  bool OnEnd(const model::End& event) override {
    end = event;
    // The one before may be taken back: an exec that failed.
    ended = event.kind != model::EndKind::kKilled;
    return true;
  }

  uint64_t events = 0;
  uint64_t first_time = UINT64_MAX;
  uint64_t last_time = 0;
  model::End end;
  bool ended = false;
  std::vector<std::string> notes;
};

// Everything of a trace that is not an event.
class RecordRouter : public RecordSink {
 public:
  RecordRouter(Definitions& definitions, Checkpoint& checkpoint)
      : definitions_(definitions), checkpoint_(checkpoint) {}

  bool OnRecord(Record record, std::span<const uint8_t> bytes) override {
    return Checkpoint::Takes(record) ? checkpoint_.OnRecord(record, bytes)
                                     : definitions_.OnRecord(record, bytes);
  }

 private:
  Definitions& definitions_;
  Checkpoint& checkpoint_;
};

TraceReader::TraceReader(File file) : file_(std::move(file)) {}

absl::StatusOr<std::unique_ptr<TraceReader>> TraceReader::Open(
    const std::string& path) {
  auto file = File::Open(path);
  if (!file.ok()) return file.status();
  std::unique_ptr<TraceReader> reader(new TraceReader(*std::move(file)));
  if (const absl::Status status = reader->Load(); !status.ok()) return status;
  return reader;
}

absl::Status TraceReader::Load() {
  auto index = IndexChunks(file_);
  if (!index.ok()) return index.status();
  chunks_ = std::move(index->chunks);
  definitions_.LimitTo(index->file_bytes);
  facts_.file_bytes = index->file_bytes;
  Survey survey;
  survey.notes = file_.notes();
  survey.notes.insert(survey.notes.end(), index->notes.begin(),
                      index->notes.end());
  DecodeContext context;
  context.strings = &definitions_.strings();
  RecordRouter router(definitions_, checkpoint_);
  context.sink = &router;
  ChunkDecoder decoder(context);
  for (ChunkInfo& chunk : chunks_) {
    absl::Status status = SurveyChunk(decoder, chunk, survey);
    if (!status.ok()) return status;
  }
  if (absl::Status status = CheckHeader(); !status.ok()) return status;
  // Chunks of definitions only have been read for good.
  std::erase_if(chunks_, [](const ChunkInfo& chunk) { return !chunk.events; });
  std::sort(chunks_.begin(), chunks_.end(),
            [](const ChunkInfo& a, const ChunkInfo& b) {
              return std::tie(a.first_time, a.sequence, a.offset) <
                     std::tie(b.first_time, b.sequence, b.offset);
            });
  FillFacts(survey);
  return absl::OkStatus();
}

absl::Status TraceReader::SurveyChunk(ChunkDecoder& decoder, ChunkInfo& chunk,
                                      Survey& survey) {
  absl::Status status = LoadChunk(file_, chunk, decoder);
  if (absl::IsAborted(status)) {
    survey.notes.emplace_back(status.message());
    chunk.committed = 0;
    chunk.recent.clear();
    return absl::OkStatus();
  }
  if (!status.ok()) return status;
  checkpoint_.BeginChunk();
  uint64_t last = chunk.first_time;
  ChunkDecoder::Result result = ChunkDecoder::Result::kEnd;
  while ((result = decoder.Next()) == ChunkDecoder::Result::kEvent) {
    ++chunk.events;
    survey.first_time = std::min(survey.first_time, chunk.first_time);
    last = decoder.time();
    decoder.Deliver(survey);
  }
  survey.events += chunk.events;
  if (chunk.events > 0) survey.last_time = std::max(survey.last_time, last);
  const auto valid = static_cast<uint32_t>(decoder.position());
  if (result == ChunkDecoder::Result::kDamaged) {
    survey.notes.push_back(absl::StrFormat(
        "byte %d: damaged record; %d bytes of the chunk at byte %d are lost",
        chunk.payload_offset + valid, chunk.committed - valid, chunk.offset));
    chunk.recent.clear();  // of which thread is not known
  } else if (chunk.last_time != 0 && chunk.last_time != last) {
    survey.notes.push_back(absl::StrFormat(
        "byte %d: the times of a chunk contradict each other", chunk.offset));
  }
  chunk.committed = valid;
  return absl::OkStatus();
}

absl::Status TraceReader::CheckHeader() {
  const ChunkInfo& first = chunks_.front();
  if (!definitions_.has_header()) {
    const bool any = std::any_of(chunks_.begin(), chunks_.end(),
                                 [](const ChunkInfo& c) { return c.events; });
    if (any) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(file_.Where(first.payload_offset + first.committed),
                     ": the trace ends before its header record"));
  }
  if (definitions_.format_version() == kFormatVersion) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(file_.Where(first.payload_offset), ": format version ",
                   definitions_.format_version(),
                   "; this program reads version ", kFormatVersion));
}

void TraceReader::FillFacts(const Survey& survey) {
  facts_.notes = survey.notes;
  if (!definitions_.has_header()) {
    facts_.notes.insert(facts_.notes.begin(),
                        "no header record: process unknown");
  } else if (definitions_.headers() > 1) {
    facts_.notes.push_back(
        "more than one header: several traces in one file? The first counts");
  }
  if (facts_.notes.size() > kMaxNotes) {
    const size_t more = facts_.notes.size() - kMaxNotes;
    facts_.notes.resize(kMaxNotes);
    facts_.notes.push_back(absl::StrCat("and ", more, " more like these"));
  }
  facts_.stacks = definitions_.BuildStacks();
  facts_.losses = definitions_.Losses();
  facts_.event_count = survey.events;
  model::Process& process = facts_.process;
  process = definitions_.TakeProcess();
  // A free is stamped before its call, so the first one may be older than the
  // header.
  start_time_ = process.start_monotonic_ns;
  if (survey.events > 0 &&
      (survey.first_time < start_time_ || !definitions_.has_header())) {
    process.start_real_ns -=
        std::min(process.start_real_ns, start_time_ - survey.first_time);
    start_time_ = survey.first_time;
    process.start_monotonic_ns = start_time_;
  }
  process.duration_ns =
      survey.last_time > start_time_ ? survey.last_time - start_time_ : 0;
  if (const uint64_t start = checkpoint_.history_start(); start != 0) {
    facts_.history_start_ns = start - std::min(start, start_time_);
    live_ = checkpoint_.Take(definitions_.strings(),
                             static_cast<uint32_t>(facts_.stacks.stacks.size()),
                             start_time_);
  }
  facts_.log_limit_bytes = checkpoint_.limit_bytes();
  facts_.tracer_bytes =
      std::max(checkpoint_.tracer_bytes(), MappedBytes(process));
  process.end = model::EndKind::kKilled;
  if (survey.ended) {
    process.end = survey.end.kind;
    process.end_status = survey.end.status;
  } else if (IsBeingWritten(file_, process.host, process.pid)) {
    process.end = model::EndKind::kStillRunning;
  }
}

absl::Status TraceReader::Replay(model::EventVisitor& visitor) const {
  DecodeContext context;
  context.strings = &definitions_.strings();
  context.stack_count = static_cast<uint32_t>(facts_.stacks.stacks.size());
  context.start_time = start_time_;
  if (checkpoint_.history_start() == 0) {
    return MergeChunks(file_, chunks_, context, visitor);
  }
  HistoryFilter filter(live_, facts_.history_start_ns, visitor);
  absl::Status status = MergeChunks(file_, chunks_, context, filter);
  filter.Finish();
  return status;
}

namespace {

// A file with a limit may write a chunk's place again while it is read: the
// chunk then begins otherwise, or has another sequence number.
absl::StatusOr<bool> IsStillThere(const File& file, const ChunkInfo& chunk) {
  constexpr uint64_t kHeaderBytes = 46;
  // Of another layout, and not of a file that is being written.
  if (chunk.payload_offset - chunk.offset != kHeaderBytes) return true;
  std::array<uint8_t, kHeaderBytes> header{};
  const auto got = file.ReadAt(chunk.offset, header);
  if (!got.ok()) return got.status();
  uint32_t sequence = 0;
  std::memcpy(&sequence, header.data() + kSequenceOffset, sizeof sequence);
  return header[0] == (1 << 3 | kWireLen) && sequence == chunk.sequence;
}

}  // namespace

absl::Status LoadChunk(const File& file, const ChunkInfo& chunk,
                       ChunkDecoder& decoder) {
  if (chunk.payload != nullptr) {
    decoder.buffer() = *chunk.payload;
    decoder.Begin(chunk);
    return absl::OkStatus();
  }
  decoder.buffer().resize(chunk.committed);
  const auto got = file.ReadAt(chunk.payload_offset, decoder.buffer());
  if (!got.ok()) return got.status();
  if (*got != chunk.committed) {
    return absl::DataLossError(
        absl::StrCat(file.Where(chunk.payload_offset + *got),
                     ": the file became shorter while it was being read"));
  }
  const auto still_there = IsStillThere(file, chunk);
  if (!still_there.ok()) return still_there.status();
  if (!*still_there) {
    return absl::AbortedError(
        absl::StrCat(file.Where(chunk.offset),
                     ": written again while it was being read; the trace has a "
                     "limit and its program still runs: read a copy"));
  }
  decoder.Begin(chunk);
  return absl::OkStatus();
}

}  // namespace dstrace::log
