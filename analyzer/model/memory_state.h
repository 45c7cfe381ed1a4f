// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_MEMORY_STATE_H_
#define DSTRACE_ANALYZER_MODEL_MEMORY_STATE_H_

// All memory of the process at one instant of the replay, both layers.
//
// Not thread-safe. Memory is proportional to what is live.

#include <cstdint>
#include <optional>
#include <vector>

#include "analyzer/model/device_layer.h"
#include "analyzer/model/events.h"
#include "analyzer/model/owners.h"
#include "analyzer/model/run.h"
#include "analyzer/model/tensor_layer.h"
#include "analyzer/model/timeline.h"

namespace dstrace::model {

// A cuMemGetInfo answer, with what the device layer had at that instant.
struct Anchor {
  uint64_t time_ns = 0;
  uint64_t used = 0;
  uint64_t total = 0;
  uint64_t layer_bytes = 0;

  // The sample brought to an instant at which the layer has `now` bytes.
  [[nodiscard]] uint64_t UsedWhen(uint64_t now) const;
};

class MemoryState {
 public:
  MemoryState(const Stacks& stacks, int default_device)
      : owners_(stacks), device_layer_(&owners_, default_device) {}
  MemoryState(const MemoryState&) = delete;
  MemoryState& operator=(const MemoryState&) = delete;

  // Each returns the device the event is about.
  int Apply(const TensorAlloc& event);
  int Apply(const TensorFree& event);
  int Apply(const DeviceEvent& event);
  int Apply(const MemorySample& event);
  int Apply(const TorchTotals& event);
  void Apply(const StreamEvent& event) { tensor_layer_.Apply(event); }
  // Settles what waits for a later event; call at the end of the replay.
  void Finish();

  [[nodiscard]] Level LevelOf(int device) const;
  // Bytes in tensors; with torch's cudaMallocAsync backend, which reports no
  // tensors, what it has allocated from its pool.
  [[nodiscard]] uint64_t TorchLive(int device) const;
  // What torch holds of the driver's memory, live bytes at least.
  [[nodiscard]] uint64_t TorchReserved(int device) const;
  // What the driver layer and torch's own total account for.
  [[nodiscard]] uint64_t Accounted(int device) const;
  // What is known to make up device use and changes without a sample: the
  // device layer and the managed memory deduced to be there.
  [[nodiscard]] uint64_t LayerBytes(int device) const;
  // False: no driver call and no sample told about this device.
  [[nodiscard]] bool has_device_layer(int device) const;

  [[nodiscard]] const DeviceLayer& device_layer() const {
    return device_layer_;
  }
  [[nodiscard]] const TensorLayer& tensor_layer() const {
    return tensor_layer_;
  }
  [[nodiscard]] const Owners& owners() const { return owners_; }
  [[nodiscard]] Owners& owners() { return owners_; }

  struct PerDevice {
    std::optional<Anchor> anchor;        // the last sample
    std::optional<Anchor> first_anchor;  // the first one
    // Managed memory on the device: deduced at the last sample, less what was
    // freed since. And what no line explained at the last sample before.
    uint64_t managed_on_device = 0;
    int64_t unexplained_before_managed = 0;
    // The last first touch of it; size: what of its loss was taken for pages.
    DeviceEvent managed_touch = {};
    uint64_t reported_reserved = 0;  // by torch
    TorchCheck check;
    // Freed here and still open elsewhere, see DeduceHeldElsewhere.
    uint64_t held_elsewhere = 0;
    int64_t unexplained_before_release = 0;
    // Context accounting, see MeasureContext. Use beyond the device layer at
    // the last sample of a context and at the one before it.
    std::optional<uint64_t> outside;
    std::optional<uint64_t> outside_before;
    bool context_created = false;
    bool context_open = false;     // created, its sample is still to come
    bool context_sampled = false;  // sampled, its event is still to come
    uint64_t before_first_context = 0;
    uint64_t context = 0;
    bool context_includes_others = false;
    // Torch totals that a tensor event of the same call may still explain.
    bool check_waits = false;
    uint32_t check_thread = 0;
    uint64_t check_allocated = 0;
    uint64_t check_error = 0;
  };
  // Null: nothing was seen of this device.
  [[nodiscard]] const PerDevice* Find(int device) const;

 private:
  PerDevice& Slot(int device);
  static void OnContextSample(PerDevice& device, const Anchor& anchor,
                              SampleReason reason);
  static void OnContextCreated(PerDevice& device);
  static void MeasureContext(PerDevice& device);
  void CompareReserved(int index, const TorchTotals& event, TorchCheck& check);
  void SettleCheck(int index, uint32_t thread);
  int64_t UnexplainedOf(int index, uint64_t used) const;
  void DeduceHeldElsewhere(int index, uint64_t used);
  void DeduceManaged(int index, uint64_t used);
  void ApplyManagedTouch(PerDevice& device, int index,
                         const DeviceEvent& event);
  void KeepManagedTouch(PerDevice& device, int64_t more);
  void ForgetFreedManaged();

  Owners owners_;
  DeviceLayer device_layer_;
  TensorLayer tensor_layer_;
  std::vector<PerDevice> devices_;  // by index + 1
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_MEMORY_STATE_H_
