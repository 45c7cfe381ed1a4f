// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/checkpoint.h"

#include <algorithm>
#include <utility>

#include "proto/trace.pb.h"

namespace dstrace::log {
namespace {

template <typename Message>
bool Parse(Message* message, std::span<const uint8_t> bytes) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

bool Checkpoint::OnRecord(Record record, std::span<const uint8_t> bytes) {
  if (record == Record::kHistory) return AddHistory(bytes);
  if (record == Record::kCheckpoint) return AddStart(bytes);
  if (!counts_) return true;
  switch (record) {
    case Record::kLiveTensor:
      return AddTensor(bytes);
    case Record::kLiveEvent:
      return AddDevice(bytes);
    case Record::kLiveSample:
      return AddSample(bytes);
    case Record::kLiveTotals:
      return AddTotals(bytes);
    default:
      return true;
  }
}

bool Checkpoint::AddHistory(std::span<const uint8_t> bytes) {
  proto::History from;
  if (!Parse(&from, bytes)) return false;
  start_ = from.start();
  limit_ = from.limit();
  return true;
}

bool Checkpoint::AddStart(std::span<const uint8_t> bytes) {
  proto::Checkpoint from;
  if (!Parse(&from, bytes)) return false;
  counts_ = start_ != 0 && from.time() == start_;
  tracer_bytes_ = std::max<uint64_t>(tracer_bytes_, from.tracer_bytes());
  return true;
}

bool Checkpoint::AddTensor(std::span<const uint8_t> bytes) {
  uint64_t values[6] = {};
  const uint8_t* at = bytes.data();
  for (uint64_t& value : values) {
    at = ReadVarint(at, bytes.data() + bytes.size(), &value);
    if (at == nullptr) return false;
  }
  model::TensorAlloc tensor;
  tensor.time = start_ - std::min(start_, values[0]);
  tensor.thread = static_cast<uint32_t>(values[1]);
  tensor.stack = static_cast<model::StackId>(values[2]);
  tensor.address = values[3];
  tensor.size = values[4];
  tensor.torch_device = static_cast<uint32_t>(values[5]);
  tensors_.push_back(tensor);
  return true;
}

bool Checkpoint::AddDevice(std::span<const uint8_t> bytes) {
  proto::LiveEvent from;
  if (!Parse(&from, bytes)) return false;
  Device device;
  FillDeviceEvent(from.event(), &device.event);
  device.event.time = from.event().time();
  device.event.thread = from.thread();
  device.event.stack = from.event().stack();
  device.api = from.event().api();
  device.label = from.event().label();
  devices_.push_back(device);
  return true;
}

bool Checkpoint::AddSample(std::span<const uint8_t> bytes) {
  proto::MemorySample from;
  if (!Parse(&from, bytes)) return false;
  model::MemorySample sample;
  sample.time = from.time();
  sample.device = from.device();
  sample.free_bytes = from.free_bytes();
  sample.total_bytes = from.total_bytes();
  sample.reason = model::SampleReason::kEvent;
  samples_.push_back(sample);
  return true;
}

bool Checkpoint::AddTotals(std::span<const uint8_t> bytes) {
  proto::TorchTotals from;
  if (!Parse(&from, bytes)) return false;
  model::TorchTotals totals;
  totals.time = from.time();
  totals.torch_device = from.device();
  totals.allocated = from.allocated();
  totals.reserved = from.reserved();
  totals.is_baseline = true;
  totals_.push_back(totals);
  return true;
}

LiveEvents Checkpoint::Take(const StringTable& strings, uint32_t stack_count,
                            uint64_t start_time) {
  LiveEvents result;
  const auto add = [&](auto event) {
    event.time -= std::min(event.time, start_time);
    result.emplace_back(event);
  };
  for (model::TensorAlloc& tensor : tensors_) {
    if (tensor.stack >= stack_count) tensor.stack = 0;
    add(tensor);
  }
  for (Device& device : devices_) {
    if (device.event.stack >= stack_count) device.event.stack = 0;
    device.event.api = strings.Get(device.api);
    device.event.label = strings.Get(device.label);
    add(device.event);
  }
  const auto time_of = [](const auto& event) {
    return std::visit([](const auto& e) { return e.time; }, event);
  };
  // What happened at one instant stays in the order of the file.
  std::stable_sort(
      result.begin(), result.end(),
      [&](const auto& a, const auto& b) { return time_of(a) < time_of(b); });
  for (const model::MemorySample& sample : samples_) add(sample);
  for (const model::TorchTotals& totals : totals_) add(totals);
  tensors_ = {};
  devices_ = {};
  return result;
}

}  // namespace dstrace::log
