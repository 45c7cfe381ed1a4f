// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_CHUNK_DECODER_H_
#define DSTRACE_ANALYZER_LOG_CHUNK_DECODER_H_

// Turns the payload of one chunk into events, one at a time.
//
// Guarantee: any bytes may be given; a malformed record ends the chunk with
// kDamaged and everything before it stands. Not thread-safe.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/log/block_table.h"
#include "analyzer/log/chunk_index.h"
#include "analyzer/log/varint.h"
#include "analyzer/model/events.h"

namespace dstrace::proto {
class DeviceEvent;
}  // namespace dstrace::proto

namespace dstrace::log {

// All of an event but time, thread, stack and text.
void FillDeviceEvent(const proto::DeviceEvent& from, model::DeviceEvent* to);

// Fields of Records in proto/trace.proto.
enum class Record : uint32_t {
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
  kCuptiTotals = 20,
  kCheckpoint = 21,
  kLiveTensor = 22,
  kLiveEvent = 23,
  kLiveSample = 24,
  kLiveTotals = 25,
  kHistory = 26,
};

// Strings of a trace by id; what is not there is empty.
class StringTable {
 public:
  void Set(uint32_t id, std::string value, uint32_t id_limit);
  [[nodiscard]] std::string_view Get(uint32_t id) const {
    return id < values_.size() ? std::string_view(values_[id])
                               : std::string_view();
  }

 private:
  std::vector<std::string> values_;
};

// Receives what is not an event: definitions and facts. False: malformed.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  virtual bool OnRecord(Record record, std::span<const uint8_t> bytes) = 0;
};

// What is the same for all chunks of a trace.
struct DecodeContext {
  const StringTable* strings = nullptr;
  uint32_t stack_count = UINT32_MAX;  // greater ids become 0
  uint64_t start_time = 0;            // subtracted from every time
  RecordSink* sink = nullptr;         // may be null
};

class ChunkDecoder {
 public:
  enum class Result { kEvent, kEnd, kDamaged };

  explicit ChunkDecoder(const DecodeContext& context);
  ChunkDecoder(const ChunkDecoder&) = delete;
  ChunkDecoder& operator=(const ChunkDecoder&) = delete;
  ~ChunkDecoder();

  // Where the caller puts `chunk.committed` bytes before Begin().
  std::vector<uint8_t>& buffer() { return buffer_; }
  void Begin(const ChunkInfo& chunk);

  // Advances to the next event.
  Result Next();

  // Of the event Next() found; nanoseconds since the start of the trace.
  [[nodiscard]] uint64_t time() const { return time_ - context_.start_time; }
  bool Deliver(model::EventVisitor& visitor) const;

  [[nodiscard]] const ChunkInfo& chunk() const { return chunk_; }
  // Of the record after the event, or of the damaged record, in the payload.
  [[nodiscard]] size_t position() const {
    return static_cast<size_t>(at_ - buffer_.data());
  }

 private:
  struct Messages;
  enum class Outcome { kEvent, kNoEvent, kBad };

  Outcome Decode(const Field& field);
  Outcome DecodeMessage(Record record, std::span<const uint8_t> bytes);
  Result NextRecent();
  bool DecodeAlloc(const uint8_t* at, const uint8_t* end);
  bool DecodeFree(const uint8_t* at, const uint8_t* end);
  bool DecodeStreamEvent(const uint8_t* at, const uint8_t* end);
  bool DecodeDevice(std::span<const uint8_t> bytes);
  bool DecodeMemorySample(std::span<const uint8_t> bytes);
  bool DecodeTorchTotals(std::span<const uint8_t> bytes);
  bool DecodeOutOfMemory(std::span<const uint8_t> bytes);
  bool DecodeMark(std::span<const uint8_t> bytes);
  bool DecodeCuptiTotals(std::span<const uint8_t> bytes);
  bool DecodeEnd(std::span<const uint8_t> bytes);
  bool SwitchThread(std::span<const uint8_t> bytes);
  bool AdvanceTime(uint64_t delta);
  template <typename Event>
  void Stamp(Event& event, Record kind);
  [[nodiscard]] model::StackId Stack(uint64_t id) const {
    return id < context_.stack_count ? static_cast<model::StackId>(id) : 0;
  }

  const DecodeContext context_;
  std::vector<uint8_t> buffer_;
  ChunkInfo chunk_;
  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
  size_t next_recent_ = 0;
  uint64_t time_ = 0;
  uint32_t thread_ = 0;
  BlockTable blocks_;
  std::unique_ptr<Messages> messages_;

  // The event at hand is the one that `kind_` names.
  Record kind_ = Record::kEnd;
  model::TensorAlloc tensor_alloc_;
  model::TensorFree tensor_free_;
  model::StreamEvent stream_event_;
  model::DeviceEvent device_;
  model::MemorySample sample_;
  model::TorchTotals totals_;
  model::OutOfMemory out_of_memory_;
  model::Mark mark_;
  model::CuptiTotals cupti_;
  model::End finish_;
};

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_CHUNK_DECODER_H_
