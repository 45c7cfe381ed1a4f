// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/device_layer.h"

#include <string_view>

namespace dstrace::model {
namespace {

constexpr uint64_t kManagedBlock = uint64_t{2} << 20;
constexpr std::string_view kGraphQuestion = "cuDeviceGetGraphMemAttribute";

// A pool by its handle; without one, the current pool of the device.
uint64_t PoolKey(int device, uint64_t pool) {
  return pool != 0 ? pool : static_cast<uint64_t>(device) + 1;
}

uint64_t& At(std::vector<uint64_t>& bytes, size_t index) {
  if (index >= bytes.size()) bytes.resize(index + 1);
  return bytes[index];
}

}  // namespace

int DeviceLayer::DeviceOf(const DeviceEvent& event) const {
  if (event.device == kHostIndex) return kHostIndex;
  const bool known = event.device >= 0 && event.device < kMaxDevices;
  return known ? event.device : default_device_;
}

DeviceLayer::Totals& DeviceLayer::TotalsOf(int device) {
  const auto index = static_cast<size_t>(device);
  if (index >= totals_.size()) totals_.resize(index + 1);
  return totals_[index];
}

const DeviceLayer::Totals* DeviceLayer::FindTotals(int device) const {
  if (device < 0 || static_cast<size_t>(device) >= totals_.size()) {
    return nullptr;
  }
  return &totals_[static_cast<size_t>(device)];
}

bool DeviceLayer::seen(int device) const {
  const Totals* const totals = FindTotals(device);
  return totals != nullptr && totals->seen;
}

uint64_t DeviceLayer::bytes(int device) const {
  const Totals* const totals = FindTotals(device);
  return totals == nullptr ? 0 : totals->bytes;
}

uint64_t DeviceLayer::released_shareable(int device) const {
  const Totals* const totals = FindTotals(device);
  return totals == nullptr ? 0 : totals->released_shareable;
}

void DeviceLayer::SetReleasedShareable(int device, uint64_t bytes) {
  TotalsOf(device).released_shareable = bytes;
}

uint64_t DeviceLayer::pool_bytes(int device, OwnerId owner) const {
  const Totals* const totals = FindTotals(device);
  if (totals == nullptr || owner >= totals->pooled.size()) return 0;
  return totals->pooled[owner];
}

uint64_t DeviceLayer::managed_bytes(int device) const {
  const Totals* const totals = FindTotals(device);
  return totals == nullptr ? 0 : totals->managed;
}

uint64_t DeviceLayer::managed_extent(int device) const {
  const Totals* const totals = FindTotals(device);
  return totals == nullptr ? 0 : totals->managed_extent;
}

uint64_t DeviceLayer::owner_bytes(int device, OwnerId owner) const {
  const Totals* const totals = FindTotals(device);
  if (totals == nullptr || owner >= totals->by_owner.size()) return 0;
  return totals->by_owner[owner];
}

bool DeviceLayer::owner_seen(int device, OwnerId owner) const {
  const Totals* const totals = FindTotals(device);
  return totals != nullptr && owner < totals->owner_seen.size() &&
         totals->owner_seen[owner];
}

DeviceAllocation DeviceLayer::Make(const DeviceEvent& event, Layer layer) {
  DeviceAllocation allocation;
  allocation.size = event.size;
  allocation.address = layer == Layer::kManaged ? event.address : 0;
  allocation.stack = event.stack;
  allocation.owner = owners_.Of(event.stack);
  allocation.layer = layer;
  allocation.device = DeviceOf(event);
  if (allocation.device == kHostIndex || layer == Layer::kHostPinned) {
    allocation.device = kHostIndex;
    allocation.layer = Layer::kHostPinned;
  }
  if (allocation.layer == Layer::kDevice || allocation.layer == Layer::kCode) {
    allocation.group = groups_.Of(event, allocation.device);
  }
  return allocation;
}

void DeviceLayer::Add(const DeviceAllocation& allocation) {
  if (allocation.layer == Layer::kHostPinned) {
    host_bytes_ += allocation.size;
    return;
  }
  Totals& totals = TotalsOf(allocation.device);
  if (allocation.layer == Layer::kManaged) {
    totals.managed += allocation.size;
    CountBlocks(allocation.address, allocation.size, allocation.device, true);
    return;
  }
  totals.seen = true;
  totals.bytes += allocation.size;
  if (allocation.owner >= totals.by_owner.size()) {
    totals.by_owner.resize(allocation.owner + 1);
    totals.owner_seen.resize(allocation.owner + 1);
  }
  totals.by_owner[allocation.owner] += allocation.size;
  totals.owner_seen[allocation.owner] = true;
  if (allocation.pool == 0) return;
  At(totals.pooled, allocation.owner) += allocation.size;
  Pool& pool = pools_[allocation.pool];
  pool.live += allocation.size;
  Recount(pool);
}

void DeviceLayer::Remove(const DeviceAllocation& allocation) {
  if (allocation.layer == Layer::kHostPinned) {
    host_bytes_ -= allocation.size;
    return;
  }
  Totals& totals = TotalsOf(allocation.device);
  if (allocation.layer == Layer::kManaged) {
    totals.managed -= allocation.size;
    CountBlocks(allocation.address, allocation.size, allocation.device, false);
    return;
  }
  totals.bytes -= allocation.size;
  totals.by_owner[allocation.owner] -= allocation.size;
  if (allocation.pool == 0) return;
  totals.pooled[allocation.owner] -= allocation.size;
  Pool& pool = pools_[allocation.pool];
  pool.live -= allocation.size;
  Recount(pool);
}

// Only the first and the last block can be another allocation's too.
void DeviceLayer::CountBlocks(uint64_t address, uint64_t size, int device,
                              bool add) {
  uint64_t& extent = TotalsOf(device).managed_extent;
  const uint64_t first = address / kManagedBlock;
  const uint64_t last = (address + (size == 0 ? 0 : size - 1)) / kManagedBlock;
  if (last < first) return;  // past the end of the address space
  const auto edge = [&](uint64_t block) {
    uint64_t& uses = managed_blocks_[block];
    if (add ? uses++ == 0 : --uses == 0) {
      extent = add ? extent + kManagedBlock : extent - kManagedBlock;
    }
    if (uses == 0) managed_blocks_.erase(block);
  };
  edge(first);
  if (last == first) return;
  edge(last);
  const uint64_t inner = (last - first - 1) * kManagedBlock;
  extent = add ? extent + inner : extent - inner;
}

void DeviceLayer::ApplyGraph(const DeviceEvent& event) {
  if (event.api == kGraphQuestion) {
    return SetGraphReserved(DeviceOf(event), event.size, event.stack);
  }
  if (event.address == 0 || event.size == 0) return;  // no allocation node
  graph_memory_.AddNode(DeviceOf(event), event.stack, event.address,
                        event.size);
}

void DeviceLayer::SetGraphReserved(int device, uint64_t reserved,
                                   StackId asked_by) {
  if (device == kHostIndex) return;
  for (const DeviceAllocation& share : graph_memory_.EndShares(device)) {
    Remove(share);
  }
  if (reserved == 0) return;
  for (const DeviceAllocation& share : graph_memory_.MakeShares(
           device, reserved, asked_by, owners_.Named(kGraphOwner))) {
    Add(share);
  }
}

// A pool keeps what is freed into it. That is still its owner's, and still
// missing on the device.
void DeviceLayer::Recount(Pool& pool) {
  Totals& totals = TotalsOf(pool.device);
  const uint64_t kept =
      pool.reserved > pool.live ? pool.reserved - pool.live : 0;
  totals.bytes += kept - pool.kept;
  At(totals.by_owner, pool.owner) += kept - pool.kept;
  pool.kept = kept;
}

void DeviceLayer::SetPoolReserved(uint64_t key, uint64_t reserved) {
  const auto found = pools_.find(key);
  if (found == pools_.end()) return;
  found->second.reserved = reserved;
  Recount(found->second);
}

void DeviceLayer::AllocFromPool(const DeviceEvent& event) {
  DeviceAllocation allocation = Make(event, Layer::kDevice);
  if (allocation.layer == Layer::kDevice) {
    allocation.pool = PoolKey(allocation.device, event.pool);
    const auto [pool, added] = pools_.try_emplace(allocation.pool);
    if (added) {
      pool->second.device = allocation.device;
      pool->second.owner = allocation.owner;
    }
  }
  Insert(by_address_, event.address, allocation);
  // The recorder asks the driver after each allocation.
  if (event.offset != 0 && allocation.pool != 0) {
    SetPoolReserved(allocation.pool, event.offset);
  }
}

void DeviceLayer::LoadCode(const DeviceEvent& event) {
  if (event.size == 0) return;
  DeviceAllocation allocation = Make(event, Layer::kCode);
  if (allocation.layer != Layer::kCode) return;
  allocation.handle = event.handle;
  code_.Load(allocation);
}

// An address that is already live had its free outside the hooks.
void DeviceLayer::Insert(Table& table, uint64_t key,
                         const DeviceAllocation& allocation) {
  const auto [entry, added] = table.try_emplace(key, allocation);
  if (!added) {
    Remove(entry->second);
    entry->second = allocation;
  }
  Add(allocation);
}

void DeviceLayer::Erase(Table& table, uint64_t key) {
  if (key == 0) return;  // freeing NULL is allowed and common
  const auto found = table.find(key);
  if (found == table.end()) {
    if (!graph_memory_.TakeAddress(key)) ++unmatched_frees_;
    return;
  }
  Remove(found->second);
  table.erase(found);
}

void DeviceLayer::Apply(const DeviceEvent& event) {
  groups_.Apply(event, DeviceOf(event));
  if (event.result != 0) return;
  switch (event.kind) {
    case DeviceKind::kAlloc:
      return Insert(by_address_, event.address, Make(event, Layer::kDevice));
    case DeviceKind::kPoolAlloc:
      return AllocFromPool(event);
    case DeviceKind::kPoolTrim:
      return SetPoolReserved(PoolKey(DeviceOf(event), event.pool),
                             event.offset);
    case DeviceKind::kPoolDestroy:
      return SetPoolReserved(PoolKey(DeviceOf(event), event.pool), 0);
    case DeviceKind::kModuleLoad:
      return LoadCode(event);
    case DeviceKind::kModuleUnload:
      return code_.Unload(DeviceOf(event), event.handle, event.size);
    case DeviceKind::kManagedAlloc:
      return Insert(by_address_, event.address, Make(event, Layer::kManaged));
    case DeviceKind::kHostAlloc:
      return Insert(by_address_, event.address,
                    Make(event, Layer::kHostPinned));
    // Either free gives back what either allocation made.
    case DeviceKind::kFree:
    case DeviceKind::kPoolFree:
    case DeviceKind::kHostFree:
      return Erase(by_address_, event.address);
    case DeviceKind::kHostRegister:
      return Insert(registered_, event.address,
                    Make(event, Layer::kHostPinned));
    case DeviceKind::kHostUnregister:
      return Erase(registered_, event.address);
    case DeviceKind::kArrayCreate:
      return Insert(arrays_, event.handle, Make(event, Layer::kDevice));
    case DeviceKind::kArrayDestroy:
      return Erase(arrays_, event.handle);
    case DeviceKind::kPhysicalCreate:
      return CreatePhysical(event);
    case DeviceKind::kPhysicalRetain:
      return physical_.Retain(event.handle, event.address);
    case DeviceKind::kPhysicalRelease:
      return GiveBack(physical_.Release(event.handle));
    case DeviceKind::kMap:
      return GiveBack(physical_.Map(event.address, event.size, event.handle));
    case DeviceKind::kUnmap:
      return GiveBack(physical_.Unmap(event.address, event.size));
    case DeviceKind::kGraph:
      return ApplyGraph(event);
    case DeviceKind::kContextDestroy:
      return DestroyContext(event);
    default:
      return;  // changes no bytes that can be known from the call
  }
}

void DeviceLayer::CreatePhysical(const DeviceEvent& event) {
  const DeviceAllocation allocation = Make(event, Layer::kDevice);
  Add(allocation);
  physical_.Create(event.handle, allocation,
                   event.offset != 0 && allocation.layer == Layer::kDevice);
}

void DeviceLayer::GiveBack(
    const std::vector<PhysicalMemory::Dropped>& dropped) {
  for (const auto& [allocation, shareable] : dropped) {
    Remove(allocation);
    if (shareable) {
      TotalsOf(allocation.device).released_shareable += allocation.size;
    }
  }
}

// The end of a primary context frees all that was allocated in it (the flag
// says that it ended; else just a reference went). Destroying another context
// frees its share, which is not known; the program is expected to free first.
void DeviceLayer::DestroyContext(const DeviceEvent& event) {
  if (event.flags == 0 ||
      event.api.find("PrimaryCtx") == std::string_view::npos) {
    return;
  }
  const int device = DeviceOf(event);
  if (device == kHostIndex) return;
  for (Table* const table : {&by_address_, &arrays_}) {
    for (auto at = table->begin(); at != table->end();) {
      const auto current = at++;
      if (current->second.device != device) continue;
      Remove(current->second);
      table->erase(current);
    }
  }
  code_.End(device);
  SetGraphReserved(device, 0, 0);
  for (auto& [key, pool] : pools_) {
    if (pool.device == device) SetPoolReserved(key, 0);
  }
}

}  // namespace dstrace::model
