// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_TENSOR_LAYER_H_
#define DSTRACE_ANALYZER_MODEL_TENSOR_LAYER_H_

// What torch's allocator has handed out, and what it got back but cannot use
// yet.
//
// A block that other streams used stays out of reach after its free until their
// recorded events are ready. The trace shows it like this, in one thread:
//
//   stream_event record A   \  libc10_cuda, inside free
//   stream_event record B   /
//   tensor_free block          -> pending on A and B
//   ...
//   stream_event ready A
//   stream_event ready B       -> reusable
//
// Not thread-safe.

#include <cstdint>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "analyzer/model/events.h"

namespace dstrace::model {

// CUDA ordinal, or kHostIndex for tensors in host memory.
constexpr int DeviceOfTensor(uint32_t torch_device) {
  const int type = static_cast<int>(torch_device >> 8 & 0xff);
  const int index = static_cast<int>(torch_device & 0xff);
  if (type == kTorchCpu) return kHostIndex;
  return index == 0xff ? 0 : index;  // -1 is torch's "current"
}

struct LiveTensor {
  uint64_t size = 0;
  StackId stack = 0;
  int device = 0;
};

class TensorLayer {
 public:
  void Alloc(const TensorAlloc& event);
  void Free(const TensorFree& event);
  void Apply(const StreamEvent& event);
  // The driver took this range back: nothing in it is pending any more.
  void ForgetPending(uint64_t address, uint64_t size);

  [[nodiscard]] uint64_t live_bytes(int device) const {
    return At(live_, device);
  }
  // Whether any tensor was ever made on this device.
  [[nodiscard]] bool seen(int device) const {
    const size_t slot = SlotOf(device);
    return slot < seen_.size() && seen_[slot];
  }
  [[nodiscard]] uint64_t pending_bytes(int device) const {
    return At(pending_bytes_, device);
  }
  [[nodiscard]] uint64_t unmatched_frees() const { return unmatched_frees_; }

  // Calls `use(const LiveTensor&)` for each.
  template <typename Use>
  void ForEachLive(Use use) const {
    for (const auto& [address, tensor] : tensors_) use(tensor);
  }
  template <typename Use>
  void ForEachPending(Use use) const {
    for (const auto& [address, block] : pending_) use(block.tensor);
  }

 private:
  struct Pending {
    LiveTensor tensor;
    uint32_t waits = 0;  // events not yet ready
  };

  // The host, -1, has the first one.
  static size_t SlotOf(int device) { return static_cast<size_t>(device) + 1; }
  static uint64_t At(const std::vector<uint64_t>& bytes, int device) {
    const size_t slot = SlotOf(device);
    return slot < bytes.size() ? bytes[slot] : 0;
  }
  static uint64_t& Slot(std::vector<uint64_t>& bytes, int device) {
    const size_t slot = SlotOf(device);
    if (slot >= bytes.size()) bytes.resize(slot + 1);
    return bytes[slot];
  }
  void MakePending(const TensorFree& event, const LiveTensor& tensor);
  void Resolve(uint64_t event);
  void ErasePending(std::map<uint64_t, Pending>::iterator block);

  absl::flat_hash_map<uint64_t, LiveTensor> tensors_;  // by address
  std::vector<uint64_t> live_;                         // by device + 1
  std::vector<bool> seen_;                             // by device + 1
  std::vector<uint64_t> pending_bytes_;                // by device + 1
  std::map<uint64_t, Pending> pending_;                // by address
  // Events a thread recorded since its last tensor event.
  absl::flat_hash_map<uint32_t, std::vector<uint64_t>> recorded_;
  // Blocks by the event they wait for.
  absl::flat_hash_map<uint64_t, std::vector<uint64_t>> waiting_;
  uint64_t unmatched_frees_ = 0;
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_TENSOR_LAYER_H_
