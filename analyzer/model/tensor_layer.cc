// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/tensor_layer.h"

#include <limits>
#include <utility>

namespace dstrace::model {
namespace {

// A block is used by a handful of streams; more means the recording is not of
// a free.
constexpr size_t kMaxRecorded = 64;

uint64_t EndOf(uint64_t address, uint64_t size) {
  const uint64_t room = std::numeric_limits<uint64_t>::max() - address;
  return address + (size < room ? size : room);
}

}  // namespace

void TensorLayer::Alloc(const TensorAlloc& event) {
  const LiveTensor tensor{event.size, event.stack,
                          DeviceOfTensor(event.torch_device)};
  const auto [entry, added] = tensors_.try_emplace(event.address, tensor);
  if (!added) {  // its free was lost
    Slot(live_, entry->second.device) -= entry->second.size;
    entry->second = tensor;
  }
  Slot(live_, tensor.device) += tensor.size;
  if (seen_.size() < live_.size()) seen_.resize(live_.size());
  seen_[SlotOf(tensor.device)] = true;
  if (!recorded_.empty()) recorded_.erase(event.thread);
  if (!pending_.empty()) ForgetPending(event.address, event.size);
}

void TensorLayer::Free(const TensorFree& event) {
  const auto found = tensors_.find(event.address);
  if (found == tensors_.end()) {
    if (event.address != 0) ++unmatched_frees_;
    return;
  }
  const LiveTensor tensor = found->second;
  tensors_.erase(found);
  Slot(live_, tensor.device) -= tensor.size;
  if (!recorded_.empty()) MakePending(event, tensor);
}

void TensorLayer::MakePending(const TensorFree& event,
                              const LiveTensor& tensor) {
  const auto recorded = recorded_.find(event.thread);
  if (recorded == recorded_.end()) return;
  ForgetPending(event.address, tensor.size);
  const auto waits = static_cast<uint32_t>(recorded->second.size());
  pending_[event.address] = Pending{tensor, waits};
  Slot(pending_bytes_, tensor.device) += tensor.size;
  for (const uint64_t id : recorded->second) {
    waiting_[id].push_back(event.address);
  }
  recorded_.erase(recorded);
}

void TensorLayer::Apply(const StreamEvent& event) {
  // Torch takes an event from its pool again only after it was ready.
  Resolve(event.event);
  if (event.kind != StreamEvent::Kind::kRecord) return;
  std::vector<uint64_t>& recorded = recorded_[event.thread];
  if (recorded.size() < kMaxRecorded) recorded.push_back(event.event);
}

void TensorLayer::Resolve(uint64_t event) {
  const auto found = waiting_.find(event);
  if (found == waiting_.end()) return;
  const std::vector<uint64_t> blocks = std::move(found->second);
  waiting_.erase(found);
  for (const uint64_t address : blocks) {
    const auto block = pending_.find(address);
    if (block != pending_.end() && --block->second.waits == 0) {
      ErasePending(block);
    }
  }
}

void TensorLayer::ForgetPending(uint64_t address, uint64_t size) {
  const uint64_t end = EndOf(address, size);
  auto block = pending_.lower_bound(address);
  // The one before may reach into the range.
  if (block != pending_.begin()) {
    const auto before = std::prev(block);
    if (EndOf(before->first, before->second.tensor.size) > address) {
      block = before;
    }
  }
  while (block != pending_.end() && block->first < end) {
    ErasePending(block++);
  }
}

void TensorLayer::ErasePending(std::map<uint64_t, Pending>::iterator block) {
  Slot(pending_bytes_, block->second.tensor.device) -=
      block->second.tensor.size;
  pending_.erase(block);
}

}  // namespace dstrace::model
