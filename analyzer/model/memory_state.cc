// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/memory_state.h"

#include <algorithm>

namespace dstrace::model {
namespace {

uint64_t Distance(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

uint64_t Minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

}  // namespace

uint64_t Anchor::UsedWhen(uint64_t now) const {
  return now >= layer_bytes ? used + (now - layer_bytes)
                            : Minus(used, layer_bytes - now);
}

MemoryState::PerDevice& MemoryState::Slot(int device) {
  const auto slot = static_cast<size_t>(device) + 1;
  if (slot >= devices_.size()) devices_.resize(slot + 1);
  return devices_[slot];
}

const MemoryState::PerDevice* MemoryState::Find(int device) const {
  const auto slot = static_cast<size_t>(device) + 1;
  return slot < devices_.size() ? &devices_[slot] : nullptr;
}

int MemoryState::Apply(const TensorAlloc& event) {
  tensor_layer_.Alloc(event);
  const int device = DeviceOfTensor(event.torch_device);
  SettleCheck(device, event.thread);
  return device;
}

int MemoryState::Apply(const TensorFree& event) {
  tensor_layer_.Free(event);
  const int device = DeviceOfTensor(event.torch_device);
  SettleCheck(device, event.thread);
  return device;
}

int MemoryState::Apply(const DeviceEvent& event) {
  const int device = device_layer_.DeviceOf(event);
  if (event.kind == DeviceKind::kModuleLoad &&
      event.api.starts_with("cuMemset") && device >= 0) {
    ApplyManagedTouch(Slot(device), device, event);
    return device;
  }
  device_layer_.Apply(event);
  if (event.result != 0) return device;
  // Without the flag just a reference to a context was counted.
  if (event.kind == DeviceKind::kContextCreate && event.flags != 0 &&
      device >= 0) {
    OnContextCreated(Slot(device));
  } else if (event.kind == DeviceKind::kUnmap) {
    tensor_layer_.ForgetPending(event.address, event.size);
  } else if (event.kind == DeviceKind::kFree ||
             event.kind == DeviceKind::kContextDestroy) {
    ForgetFreedManaged();
  }
  return device;
}

// What the device lost when managed memory was first touched: the pages of all
// managed memory, as far as they were not there, and the rest is CUDA's own.
void MemoryState::ApplyManagedTouch(PerDevice& device, int index,
                                    const DeviceEvent& event) {
  const uint64_t pages = std::min(
      event.size,
      Minus(device_layer_.managed_extent(index), device.managed_on_device));
  DeviceEvent own = event;
  own.size -= pages;
  device_layer_.Apply(own);
  if (event.result != 0) return;
  const uint64_t before = device.managed_touch.size;
  device.managed_touch = event;
  device.managed_touch.size = before + pages;
}

// What is still missing when all managed memory is gone was not its pages.
void MemoryState::KeepManagedTouch(PerDevice& device, int64_t more) {
  DeviceEvent own = device.managed_touch;
  device.managed_touch = {};
  if (more <= 0 || own.size == 0) return;
  own.size = std::min(own.size, static_cast<uint64_t>(more));
  device_layer_.Apply(own);
}

// What neither the device layer nor another line explains but `managed` pages.
int64_t MemoryState::UnexplainedOf(int index, uint64_t used) const {
  const PerDevice* const device = Find(index);
  uint64_t explained = Accounted(index) + device_layer_.code_bytes(index);
  if (device != nullptr) {
    explained += device->context + device->before_first_context;
  }
  return static_cast<int64_t>(used) - static_cast<int64_t>(explained);
}

// Physical memory that was let go of, but that the device has not got back:
// what a sample cannot explain beyond what it could not before, as far as
// memory was released that another process can have open (NCCL's peers do).
// What has come back once stays so.
void MemoryState::DeduceHeldElsewhere(int index, uint64_t used) {
  constexpr uint64_t kGranule = uint64_t{2} << 20;  // of physical memory
  PerDevice& device = Slot(index);
  const int64_t unexplained = UnexplainedOf(index, used) -
                              static_cast<int64_t>(device.managed_on_device);
  const int64_t more = unexplained - device.unexplained_before_release;
  device.held_elsewhere =
      std::min(device_layer_.released_shareable(index),
               static_cast<uint64_t>(std::max<int64_t>(more, 0)));
  if (device.held_elsewhere < kGranule) {
    device.held_elsewhere = 0;
    device.unexplained_before_release = std::max<int64_t>(unexplained, 0);
  }
  device_layer_.SetReleasedShareable(index, device.held_elsewhere);
}

// What no line explains while managed memory is alive is taken for its pages,
// as far as that memory reaches, beyond what none explained before.
void MemoryState::DeduceManaged(int index, uint64_t used) {
  PerDevice& device = Slot(index);
  const int64_t unexplained =
      UnexplainedOf(index, used) - static_cast<int64_t>(device.held_elsewhere);
  const uint64_t extent = device_layer_.managed_extent(index);
  const int64_t more = unexplained - device.unexplained_before_managed;
  if (extent == 0) {
    if (device.managed_touch.size > 0) return KeepManagedTouch(device, more);
    device.unexplained_before_managed = std::max<int64_t>(unexplained, 0);
    device.managed_on_device = 0;
    return;
  }
  device.managed_on_device =
      std::min(extent, static_cast<uint64_t>(std::max<int64_t>(more, 0)));
}

// Pages go with their allocation; which ones were on the device is not known.
void MemoryState::ForgetFreedManaged() {
  for (size_t slot = 1; slot < devices_.size(); ++slot) {
    uint64_t& bytes = devices_[slot].managed_on_device;
    if (bytes == 0) continue;
    const int index = static_cast<int>(slot) - 1;
    bytes = std::min(bytes, device_layer_.managed_extent(index));
  }
}

int MemoryState::Apply(const MemorySample& event) {
  const int index =
      event.device >= 0 && event.device < kMaxDevices ? event.device : 0;
  if (event.total_bytes == 0 || event.free_bytes > event.total_bytes) {
    return index;
  }
  Anchor anchor;
  anchor.time_ns = event.time;
  anchor.total = event.total_bytes;
  anchor.used = event.total_bytes - event.free_bytes;
  DeduceHeldElsewhere(index, anchor.used);
  DeduceManaged(index, anchor.used);
  anchor.layer_bytes = LayerBytes(index);
  PerDevice& device = Slot(index);
  device.anchor = anchor;
  if (!device.first_anchor.has_value()) device.first_anchor = anchor;
  if (event.reason == SampleReason::kContext ||
      event.reason == SampleReason::kFirst) {
    OnContextSample(device, anchor, event.reason);
  }
  return index;
}

// The recorder writes the event of a creation after the sample that follows it;
// the other order is understood too.
void MemoryState::OnContextSample(PerDevice& device, const Anchor& anchor,
                                  SampleReason reason) {
  device.outside_before = device.outside;
  device.outside = Minus(anchor.used, anchor.layer_bytes);
  if (device.context_open) {
    device.context_open = false;
    MeasureContext(device);
  } else if (reason == SampleReason::kContext) {
    device.context_sampled = true;
  }
}

void MemoryState::OnContextCreated(PerDevice& device) {
  if (device.context_sampled) {
    device.context_sampled = false;
    MeasureContext(device);
  } else {
    device.context_open = true;
  }
}

// A context costs what the samples around its creation differ by, beyond the
// device layer. Without one before the first context, its cost and the memory
// of other processes cannot be told apart.
void MemoryState::MeasureContext(PerDevice& device) {
  const uint64_t after = device.outside.value_or(0);
  if (device.outside_before.has_value()) {
    if (!device.context_created) {
      device.before_first_context = *device.outside_before;
    }
    device.context += Minus(after, *device.outside_before);
  } else {
    device.context = after;
    device.context_includes_others = true;
  }
  device.context_created = true;
  // The sample it was measured with could not be explained without it.
  device.unexplained_before_managed = 0;
  device.unexplained_before_release = 0;
}

int MemoryState::Apply(const TorchTotals& event) {
  const int index = DeviceOfTensor(event.torch_device);
  PerDevice& device = Slot(index);
  device.reported_reserved = event.reserved;
  if (event.is_baseline) return index;
  if (device.check_waits) SettleCheck(index, device.check_thread);
  CompareReserved(index, event, device.check);
  ++device.check.reports;
  const uint64_t error =
      Distance(event.allocated, tensor_layer_.live_bytes(index));
  if (error == 0) return index;
  device.check_waits = true;
  device.check_thread = event.thread;
  device.check_allocated = event.allocated;
  device.check_error = error;
  return index;
}

void MemoryState::CompareReserved(int index, const TorchTotals& event,
                                  TorchCheck& check) {
  if (!device_layer_.owner_seen(index, kOwnerTorch)) return;
  const uint64_t error =
      Distance(event.reserved, device_layer_.owner_bytes(index, kOwnerTorch));
  ++check.reserved_reports;
  if (error != 0) ++check.reserved_mismatches;
  check.largest_reserved_error = std::max(check.largest_reserved_error, error);
}

// Torch's totals hold after an event of the same call; whether they stand
// before or after it in the log is the recorder's choice.
void MemoryState::SettleCheck(int index, uint32_t thread) {
  PerDevice& device = Slot(index);
  if (!device.check_waits || device.check_thread != thread) return;
  device.check_waits = false;
  const uint64_t error =
      Distance(device.check_allocated, tensor_layer_.live_bytes(index));
  if (error == 0) return;
  ++device.check.mismatches;
  device.check.largest_error =
      std::max(device.check.largest_error, std::min(error, device.check_error));
}

void MemoryState::Finish() {
  for (size_t slot = 0; slot < devices_.size(); ++slot) {
    SettleCheck(static_cast<int>(slot) - 1, devices_[slot].check_thread);
  }
}

bool MemoryState::has_device_layer(int device) const {
  const PerDevice* const state = Find(device);
  return device_layer_.seen(device) ||
         (state != nullptr && state->anchor.has_value());
}

uint64_t MemoryState::TorchReserved(int device) const {
  const PerDevice* const state = Find(device);
  uint64_t reserved = 0;
  if (device_layer_.owner_seen(device, kOwnerTorch)) {
    reserved = device_layer_.owner_bytes(device, kOwnerTorch);
  } else if (state != nullptr) {
    reserved = state->reported_reserved;
  }
  return std::max(reserved, TorchLive(device));
}

uint64_t MemoryState::Accounted(int device) const {
  const uint64_t reserved = TorchReserved(device);
  const uint64_t bytes = device_layer_.bytes(device);
  if (device_layer_.owner_seen(device, kOwnerTorch)) {
    return bytes - device_layer_.owner_bytes(device, kOwnerTorch) + reserved;
  }
  // See FillLibraries() in snapshot.cc: torch's are among those of no owner.
  const uint64_t unknown = device_layer_.owner_bytes(device, kOwnerUnknown);
  return bytes - std::min(unknown, reserved) + reserved;
}

uint64_t MemoryState::LayerBytes(int device) const {
  const PerDevice* const state = Find(device);
  return device_layer_.bytes(device) +
         (state == nullptr ? 0 : state->managed_on_device);
}

uint64_t MemoryState::TorchLive(int device) const {
  if (tensor_layer_.seen(device)) return tensor_layer_.live_bytes(device);
  return device_layer_.pool_bytes(device, kOwnerTorch);
}

Level MemoryState::LevelOf(int device) const {
  Level level;
  level.live = tensor_layer_.live_bytes(device);
  level.reserved = TorchReserved(device);
  const PerDevice* const state = Find(device);
  const uint64_t bytes = LayerBytes(device);
  if (state != nullptr && state->anchor.has_value()) {
    level.used = state->anchor->UsedWhen(bytes);
  } else if (device_layer_.seen(device)) {
    level.used = bytes;
  } else {
    level.used = level.live;
  }
  return level;
}

}  // namespace dstrace::model
