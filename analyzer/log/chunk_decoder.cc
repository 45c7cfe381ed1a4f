// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/chunk_decoder.h"

#include <algorithm>
#include <utility>

#include "proto/trace.pb.h"

namespace dstrace::log {
namespace {

constexpr uint8_t Tag(Record record) {
  return static_cast<uint8_t>(static_cast<uint32_t>(record) << 3 | kWireLen);
}

static_assert(static_cast<int>(model::DeviceKind::kPhysicalRetain) ==
              proto::DeviceEvent::PHYSICAL_RETAIN);
static_assert(proto::DeviceEvent::Kind_MAX ==
              static_cast<int>(model::DeviceKind::kPhysicalRetain));
static_assert(static_cast<int>(model::SampleReason::kModule) ==
              proto::MemorySample::MODULE);

template <typename Message>
bool Parse(Message* message, std::span<const uint8_t> bytes) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

model::EndKind EndKindOf(proto::End::Kind kind) {
  switch (kind) {
    case proto::End::FAST_EXIT:
      return model::EndKind::kFastExit;
    case proto::End::SIGNAL:
      return model::EndKind::kSignal;
    case proto::End::EXEC:
      return model::EndKind::kExec;
    case proto::End::ABORT:
      return model::EndKind::kAbort;
    case proto::End::UNKNOWN:
      return model::EndKind::kKilled;
    default:
      return model::EndKind::kExit;
  }
}

}  // namespace

void FillDeviceEvent(const proto::DeviceEvent& from, model::DeviceEvent* to) {
  to->kind = proto::DeviceEvent::Kind_IsValid(from.kind())
                 ? static_cast<model::DeviceKind>(from.kind())
                 : model::DeviceKind::kUnknown;
  to->address = from.address();
  to->size = from.size();
  to->device = from.device();
  to->handle = from.handle();
  to->stream = from.stream();
  to->pool = from.pool();
  to->offset = from.offset();
  to->flags = from.flags();
  to->result = from.result();
  to->free_bytes = from.free_bytes();
  to->total_bytes = from.total_bytes();
}

void StringTable::Set(uint32_t id, std::string value, uint32_t id_limit) {
  if (id >= id_limit) return;
  if (id >= values_.size()) values_.resize(id + 1);
  values_[id] = std::move(value);
}

// Reused, so that a message costs no allocation.
struct ChunkDecoder::Messages {
  proto::DeviceEvent device;
  proto::MemorySample sample;
  proto::TorchTotals totals;
  proto::OutOfMemory out_of_memory;
  proto::Mark mark;
  proto::CuptiTotals cupti;
  proto::End end;
};

ChunkDecoder::ChunkDecoder(const DecodeContext& context)
    : context_(context), messages_(std::make_unique<Messages>()) {}

ChunkDecoder::~ChunkDecoder() = default;

void ChunkDecoder::Begin(const ChunkInfo& chunk) {
  chunk_ = chunk;
  at_ = buffer_.data();
  end_ = at_ + std::min<size_t>(buffer_.size(), chunk.committed);
  time_ = chunk.first_time;
  thread_ = chunk.thread;
  next_recent_ = 0;
  blocks_.Clear();
}

ChunkDecoder::Result ChunkDecoder::Next() {
  while (at_ < end_) {
    // The two kinds that make up nearly all of a trace, without the detour.
    if (end_ - at_ > 2 && at_[1] < 0x80 && at_[1] <= end_ - at_ - 2) {
      const uint8_t* const body = at_ + 2;
      const uint8_t* const body_end = body + at_[1];
      if (*at_ == Tag(Record::kTensorAlloc)) {
        if (!DecodeAlloc(body, body_end)) return Result::kDamaged;
        at_ = body_end;
        return Result::kEvent;
      }
      if (*at_ == Tag(Record::kTensorFree)) {
        if (!DecodeFree(body, body_end)) return Result::kDamaged;
        at_ = body_end;
        return Result::kEvent;
      }
    }
    Field field;
    if (!ReadField(at_, end_, &field)) return Result::kDamaged;
    const Outcome outcome = Decode(field);
    if (outcome == Outcome::kBad) return Result::kDamaged;
    at_ = field.end;
    if (outcome == Outcome::kEvent) return Result::kEvent;
  }
  return NextRecent();
}

ChunkDecoder::Result ChunkDecoder::NextRecent() {
  if (next_recent_ == chunk_.recent.size()) return Result::kEnd;
  const RecentTensor& from = chunk_.recent[next_recent_++];
  time_ = std::max(time_, from.time);  // as in the payload: never back
  if (from.size > 0) {
    Stamp(tensor_alloc_, Record::kTensorAlloc);
    tensor_alloc_.address = from.address;
    tensor_alloc_.size = static_cast<uint64_t>(from.size);
    tensor_alloc_.torch_device = from.torch_device;
    tensor_alloc_.stack = Stack(from.stack);
  } else {
    Stamp(tensor_free_, Record::kTensorFree);
    tensor_free_.address = from.address;
    tensor_free_.size = -static_cast<uint64_t>(from.size);
    tensor_free_.torch_device = from.torch_device;
  }
  return Result::kEvent;
}

ChunkDecoder::Outcome ChunkDecoder::Decode(const Field& field) {
  // Every record of this format is length-delimited; others are of a later one.
  if (field.type != kWireLen) return Outcome::kNoEvent;
  const auto record = static_cast<Record>(field.number);
  const auto event_if = [](bool good) {
    return good ? Outcome::kEvent : Outcome::kBad;
  };
  switch (record) {
    case Record::kTensorAlloc:
      return event_if(DecodeAlloc(field.data, field.end));
    case Record::kTensorFree:
      return event_if(DecodeFree(field.data, field.end));
    case Record::kStreamEvent:
      return event_if(DecodeStreamEvent(field.data, field.end));
    default:
      return DecodeMessage(record, {field.data, field.value});
  }
}

ChunkDecoder::Outcome ChunkDecoder::DecodeMessage(
    Record record, std::span<const uint8_t> bytes) {
  const auto event_if = [](bool good) {
    return good ? Outcome::kEvent : Outcome::kBad;
  };
  switch (record) {
    case Record::kDeviceEvent:
      return event_if(DecodeDevice(bytes));
    case Record::kMemorySample:
      return event_if(DecodeMemorySample(bytes));
    case Record::kTorchTotals:
      return event_if(DecodeTorchTotals(bytes));
    case Record::kOutOfMemory:
      return event_if(DecodeOutOfMemory(bytes));
    case Record::kMark:
      return event_if(DecodeMark(bytes));
    case Record::kCuptiTotals:
      return event_if(DecodeCuptiTotals(bytes));
    case Record::kEnd:
      return event_if(DecodeEnd(bytes));
    case Record::kThread:
      if (!SwitchThread(bytes)) return Outcome::kBad;
      break;
    default:
      break;
  }
  if (context_.sink != nullptr && !context_.sink->OnRecord(record, bytes)) {
    return Outcome::kBad;
  }
  return Outcome::kNoEvent;
}

bool ChunkDecoder::AdvanceTime(uint64_t delta) {
  return !__builtin_add_overflow(time_, delta, &time_);
}

template <typename Event>
void ChunkDecoder::Stamp(Event& event, Record kind) {
  event.time = time();
  event.thread = thread_;
  kind_ = kind;
}

bool ChunkDecoder::DecodeAlloc(const uint8_t* at, const uint8_t* end) {
  uint64_t delta = 0;
  uint64_t stack = 0;
  BlockTable::Block block;
  at = ReadVarint(at, end, &delta);
  if (at == nullptr) return false;
  at = ReadVarint(at, end, &stack);
  if (at == nullptr) return false;
  if (blocks_.Read(at, end, &block) == nullptr) return false;
  if (!AdvanceTime(delta)) return false;
  Stamp(tensor_alloc_, Record::kTensorAlloc);
  tensor_alloc_.address = block.address;
  tensor_alloc_.size = block.size;
  tensor_alloc_.torch_device = block.device;
  tensor_alloc_.stack = Stack(stack);
  return true;
}

bool ChunkDecoder::DecodeFree(const uint8_t* at, const uint8_t* end) {
  uint64_t delta = 0;
  BlockTable::Block block;
  at = ReadVarint(at, end, &delta);
  if (at == nullptr || blocks_.Read(at, end, &block) == nullptr) return false;
  if (!AdvanceTime(delta)) return false;
  Stamp(tensor_free_, Record::kTensorFree);
  tensor_free_.address = block.address;
  tensor_free_.size = block.size;
  tensor_free_.torch_device = block.device;
  return true;
}

bool ChunkDecoder::DecodeStreamEvent(const uint8_t* at, const uint8_t* end) {
  uint64_t values[4] = {};
  for (uint64_t& value : values) {
    at = ReadVarint(at, end, &value);
    if (at == nullptr) return false;
  }
  if (!AdvanceTime(values[0])) return false;
  Stamp(stream_event_, Record::kStreamEvent);
  stream_event_.kind = values[1] == 0 ? model::StreamEvent::Kind::kRecord
                                      : model::StreamEvent::Kind::kReady;
  stream_event_.event = values[2];
  stream_event_.stream = values[3];
  return true;
}

bool ChunkDecoder::DecodeDevice(std::span<const uint8_t> bytes) {
  proto::DeviceEvent& from = messages_->device;
  if (!Parse(&from, bytes) || !AdvanceTime(from.time())) return false;
  Stamp(device_, Record::kDeviceEvent);
  FillDeviceEvent(from, &device_);
  device_.api = context_.strings->Get(from.api());
  device_.label = context_.strings->Get(from.label());
  device_.stack = Stack(from.stack());
  return true;
}

bool ChunkDecoder::DecodeMemorySample(std::span<const uint8_t> bytes) {
  proto::MemorySample& from = messages_->sample;
  if (!Parse(&from, bytes) || !AdvanceTime(from.time())) return false;
  Stamp(sample_, Record::kMemorySample);
  sample_.device = from.device();
  sample_.free_bytes = from.free_bytes();
  sample_.total_bytes = from.total_bytes();
  sample_.reason = proto::MemorySample::Reason_IsValid(from.reason())
                       ? static_cast<model::SampleReason>(from.reason())
                       : model::SampleReason::kUnknown;
  return true;
}

bool ChunkDecoder::DecodeTorchTotals(std::span<const uint8_t> bytes) {
  proto::TorchTotals& from = messages_->totals;
  if (!Parse(&from, bytes) || !AdvanceTime(from.time())) return false;
  Stamp(totals_, Record::kTorchTotals);
  totals_.torch_device = from.device();
  totals_.allocated = from.allocated();
  totals_.reserved = from.reserved();
  return true;
}

bool ChunkDecoder::DecodeOutOfMemory(std::span<const uint8_t> bytes) {
  proto::OutOfMemory& from = messages_->out_of_memory;
  if (!Parse(&from, bytes) || !AdvanceTime(from.time())) return false;
  Stamp(out_of_memory_, Record::kOutOfMemory);
  out_of_memory_.torch_device = from.device();
  out_of_memory_.size = from.size();
  out_of_memory_.allocated = from.allocated();
  out_of_memory_.reserved = from.reserved();
  out_of_memory_.stack = Stack(from.stack());
  return true;
}

bool ChunkDecoder::DecodeMark(std::span<const uint8_t> bytes) {
  proto::Mark& from = messages_->mark;
  if (!Parse(&from, bytes) || !AdvanceTime(from.time())) return false;
  Stamp(mark_, Record::kMark);
  mark_.kind = from.kind();
  mark_.name = context_.strings->Get(from.name());
  mark_.domain = context_.strings->Get(from.domain());
  return true;
}

bool ChunkDecoder::DecodeCuptiTotals(std::span<const uint8_t> bytes) {
  proto::CuptiTotals& from = messages_->cupti;
  if (!Parse(&from, bytes) || !AdvanceTime(from.time())) return false;
  Stamp(cupti_, Record::kCuptiTotals);
  cupti_.version = from.version();
  cupti_.kinds = {};
  for (const proto::CuptiTotals::Kind& kind : from.kind()) {
    // Kinds of a later CUPTI are nobody's to compare.
    if (kind.kind() >= cupti_.kinds.size()) continue;
    cupti_.kinds[kind.kind()] = {kind.allocations(), kind.allocated_bytes(),
                                 kind.frees(), kind.freed_bytes()};
  }
  cupti_.pool_operations = from.pool_operations();
  cupti_.dropped = from.dropped();
  cupti_.unknown = from.unknown();
  cupti_.stopped = from.stopped();
  return true;
}

bool ChunkDecoder::DecodeEnd(std::span<const uint8_t> bytes) {
  proto::End& from = messages_->end;
  if (!Parse(&from, bytes) || !AdvanceTime(from.time())) return false;
  Stamp(finish_, Record::kEnd);
  finish_.kind = EndKindOf(from.kind());
  finish_.status = from.status();
  return true;
}

// Reads the number only; the name may hold bytes that libprotobuf rejects.
bool ChunkDecoder::SwitchThread(std::span<const uint8_t> bytes) {
  const uint8_t* at = bytes.data();
  const uint8_t* const end = at + bytes.size();
  uint64_t tid = 0;
  Field field;
  while (at < end) {
    if (!ReadField(at, end, &field)) return false;
    if (field.number == proto::Thread::kTidFieldNumber) tid = field.value;
    at = field.end;
  }
  thread_ = static_cast<uint32_t>(tid);
  return true;
}

bool ChunkDecoder::Deliver(model::EventVisitor& visitor) const {
  switch (kind_) {
    case Record::kTensorAlloc:
      return visitor.OnTensorAlloc(tensor_alloc_);
    case Record::kTensorFree:
      return visitor.OnTensorFree(tensor_free_);
    case Record::kDeviceEvent:
      return visitor.OnDevice(device_);
    case Record::kMemorySample:
      return visitor.OnMemorySample(sample_);
    case Record::kTorchTotals:
      return visitor.OnTorchTotals(totals_);
    case Record::kOutOfMemory:
      return visitor.OnOutOfMemory(out_of_memory_);
    case Record::kStreamEvent:
      return visitor.OnStreamEvent(stream_event_);
    case Record::kMark:
      return visitor.OnMark(mark_);
    case Record::kCuptiTotals:
      return visitor.OnCuptiTotals(cupti_);
    case Record::kEnd:
      return visitor.OnEnd(finish_);
    default:
      return true;
  }
}

}  // namespace dstrace::log
