// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/snapshot.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace dstrace::model {
namespace {

// Sums live bytes by (layer, owner, stack).
class Sums {
 public:
  void Add(Layer layer, OwnerId owner, StackId stack, uint64_t bytes) {
    auto& [sum, count] = sums_[{layer, owner, stack}];
    sum += bytes;
    ++count;
  }

  std::vector<Holding> Sorted(const Owners& owners) const {
    std::vector<Holding> result;
    result.reserve(sums_.size());
    for (const auto& [key, sum] : sums_) {
      const auto& [layer, owner, stack] = key;
      result.push_back(
          {layer, owners.Name(owner), stack, sum.first, sum.second});
    }
    std::stable_sort(
        result.begin(), result.end(),
        [](const Holding& a, const Holding& b) { return a.bytes > b.bytes; });
    return result;
  }

 private:
  std::map<std::tuple<Layer, OwnerId, StackId>, std::pair<uint64_t, uint64_t>>
      sums_;
};

// Which of the managed allocations have their pages on the device is not known:
// each stack has its share by size.
void AddManagedOnDevice(uint64_t on_device, uint64_t managed,
                        std::vector<Holding>* holdings) {
  std::vector<Holding> parts;
  uint64_t left = on_device;
  for (const Holding& holding : *holdings) {
    if (holding.layer != Layer::kManaged) continue;
    Holding part = holding;
    part.layer = Layer::kManagedOnDevice;
    part.bytes = static_cast<uint64_t>(static_cast<double>(on_device) *
                                       static_cast<double>(holding.bytes) /
                                       static_cast<double>(managed));
    part.bytes = std::min(part.bytes, left);
    left -= part.bytes;
    parts.push_back(part);
  }
  if (parts.empty()) return;
  parts.front().bytes += left;
  holdings->insert(holdings->end(), parts.begin(), parts.end());
  std::stable_sort(
      holdings->begin(), holdings->end(),
      [](const Holding& a, const Holding& b) { return a.bytes > b.bytes; });
}

std::vector<Holding> Holdings(const MemoryState& state, int device) {
  Sums sums;
  state.tensor_layer().ForEachLive([&](const LiveTensor& tensor) {
    if (tensor.device != device) return;
    sums.Add(Layer::kTensor, kOwnerTorch, tensor.stack, tensor.size);
  });
  state.device_layer().ForEachLive([&](const DeviceAllocation& allocation) {
    const bool host = allocation.layer == Layer::kHostPinned;
    if (!host && allocation.device != device) return;
    sums.Add(allocation.layer, allocation.owner, allocation.stack,
             allocation.size);
  });
  std::vector<Holding> holdings = sums.Sorted(state.owners());
  if (const auto* const known = state.Find(device);
      known != nullptr && known->managed_on_device > 0) {
    AddManagedOnDevice(known->managed_on_device,
                       state.device_layer().managed_bytes(device), &holdings);
  }
  return holdings;
}

std::vector<Holding> StreamPending(const MemoryState& state, int device) {
  Sums sums;
  state.tensor_layer().ForEachPending([&](const LiveTensor& tensor) {
    if (tensor.device != device) return;
    sums.Add(Layer::kTensor, kOwnerTorch, tensor.stack, tensor.size);
  });
  return sums.Sorted(state.owners());
}

// Returns the sum of all libraries.
uint64_t FillLibraries(const MemoryState& state, int device, Ledger* ledger) {
  const DeviceLayer& layer = state.device_layer();
  const bool torch_known = layer.owner_seen(device, kOwnerTorch);
  uint64_t sum = 0;
  for (OwnerId owner = 0; owner < state.owners().size(); ++owner) {
    if (owner == kOwnerTorch) continue;
    uint64_t bytes = layer.owner_bytes(device, owner);
    // Without native stacks torch's segments have no owner; torch's own total
    // tells how many of those bytes they are.
    if (owner == kOwnerUnknown && !torch_known) {
      bytes -= std::min(bytes, ledger->torch_reserved);
    }
    if (bytes == 0) continue;
    ledger->libraries[state.owners().Name(owner)] = bytes;
    sum += bytes;
  }
  return sum;
}

void FillUsed(const MemoryState& state, int device, uint64_t time_ns,
              const std::optional<Anchor>& first_sample, uint64_t accounted,
              Ledger* ledger) {
  const MemoryState::PerDevice* const known = state.Find(device);
  const bool past = known != nullptr && known->anchor.has_value();
  const std::optional<Anchor>& anchor = past ? known->anchor : first_sample;
  ledger->device_used_known = anchor.has_value();
  if (!anchor.has_value()) {
    ledger->device_used = accounted;
    return;
  }
  ledger->device_total = anchor->total;
  ledger->device_used = anchor->UsedWhen(state.LayerBytes(device));
  ledger->sample_age_ns = time_ns > anchor->time_ns ? time_ns - anchor->time_ns
                                                    : anchor->time_ns - time_ns;
  ledger->residual = static_cast<int64_t>(ledger->device_used - accounted);
}

}  // namespace

Ledger MakeLedger(const MemoryState& state, int device, uint64_t time_ns,
                  const std::optional<Anchor>& first_sample) {
  Ledger ledger;
  ledger.torch_live = state.TorchLive(device);
  ledger.torch_reserved = state.TorchReserved(device);
  ledger.torch_cached = ledger.torch_reserved - ledger.torch_live;
  ledger.torch_stream_pending =
      std::min(ledger.torch_cached, state.tensor_layer().pending_bytes(device));
  ledger.code = state.device_layer().code_bytes(device);
  ledger.managed = state.device_layer().managed_bytes(device);
  ledger.managed_extent = state.device_layer().managed_extent(device);
  ledger.host_pinned = state.device_layer().host_pinned_bytes();
  const uint64_t libraries = FillLibraries(state, device, &ledger);
  if (const auto* const known = state.Find(device); known != nullptr) {
    ledger.before_first_context = known->before_first_context;
    ledger.context = known->context;
    ledger.context_includes_others = known->context_includes_others;
    ledger.managed_on_device = known->managed_on_device;
    ledger.held_elsewhere = known->held_elsewhere;
  }
  FillUsed(state, device, time_ns, first_sample,
           ledger.torch_reserved + libraries, &ledger);
  return ledger;
}

Snapshot TakeSnapshot(const MemoryState& state, int device, uint64_t time_ns,
                      std::string name,
                      const std::optional<Anchor>& first_sample) {
  Snapshot snapshot;
  snapshot.time_ns = time_ns;
  snapshot.name = std::move(name);
  snapshot.ledger = MakeLedger(state, device, time_ns, first_sample);
  snapshot.holdings = Holdings(state, device);
  snapshot.stream_pending = StreamPending(state, device);
  state.device_layer().ForEachLive([&](const DeviceAllocation& allocation) {
    if (allocation.group == kNoGroup || allocation.device != device) return;
    snapshot.groups[allocation.group] += allocation.size;
  });
  return snapshot;
}

}  // namespace dstrace::model
