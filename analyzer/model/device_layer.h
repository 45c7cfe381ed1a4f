// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_DEVICE_LAYER_H_
#define DSTRACE_ANALYZER_MODEL_DEVICE_LAYER_H_

// What the driver holds for the process, by the calls that made it so.
//
//   counted as device memory   cuMemAlloc*, stream-ordered allocations, arrays,
//                              cuMemCreate on a device
//                              what pools keep beyond their allocations
//                              what graphs' memory nodes hold, by the driver's
//                              own figure, see graph_memory.h
//   CUDA's own                 code, kernels' local memory, streams: what the
//                              recorder measured around the calls that take it
//   beside it                  pinned host memory, managed memory
//   no bytes                   address ranges, mappings, what another process
//                              shared (IPC, imported handles)
//
// Physical memory of cuMemCreate counts until neither a handle nor a mapping
// holds it, see physical_memory.h.
//
// Not thread-safe. Bytes as asked for; the driver's rounding is not visible.

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "analyzer/model/code_memory.h"
#include "analyzer/model/device_allocation.h"
#include "analyzer/model/events.h"
#include "analyzer/model/graph_memory.h"
#include "analyzer/model/groups.h"
#include "analyzer/model/owners.h"
#include "analyzer/model/physical_memory.h"

namespace dstrace::model {

class DeviceLayer {
 public:
  // `owners` must outlive this. `default_device` stands in where an event does
  // not know its device.
  DeviceLayer(Owners* owners, int default_device)
      : owners_(*owners), default_device_(default_device) {}

  // Applies one event; failed calls change nothing.
  void Apply(const DeviceEvent& event);

  // The device an event is about, default included (for one that no machine
  // has, too); kHostIndex for the host.
  [[nodiscard]] int DeviceOf(const DeviceEvent& event) const;

  // Whether any device memory of this device was ever allocated.
  [[nodiscard]] bool seen(int device) const;
  [[nodiscard]] uint64_t bytes(int device) const;
  // What CUDA took for itself, as measured; not part of bytes().
  [[nodiscard]] uint64_t code_bytes(int device) const {
    return code_.bytes(device);
  }
  // Stream-ordered allocations of `owner`, without what their pools keep.
  [[nodiscard]] uint64_t pool_bytes(int device, OwnerId owner) const;
  [[nodiscard]] uint64_t managed_bytes(int device) const;
  // The most that live managed allocations can have on the device: its pages
  // come and go in blocks of 2 MiB.
  [[nodiscard]] uint64_t managed_extent(int device) const;
  [[nodiscard]] uint64_t owner_bytes(int device, OwnerId owner) const;
  [[nodiscard]] bool owner_seen(int device, OwnerId owner) const;
  [[nodiscard]] uint64_t host_pinned_bytes() const { return host_bytes_; }
  [[nodiscard]] const Groups& groups() const { return groups_; }
  [[nodiscard]] uint64_t unmatched_frees() const {
    return unmatched_frees_ + physical_.unmatched_releases();
  }

  // Physical memory that this process has let go of, but another one may still
  // have open: it could be exported. Less what is known to have come back.
  [[nodiscard]] uint64_t released_shareable(int device) const;
  void SetReleasedShareable(int device, uint64_t bytes);

  // Calls `use(const DeviceAllocation&)` for all that is live.
  template <typename Use>
  void ForEachLive(Use use) const {
    for (const auto& [address, allocation] : by_address_) use(allocation);
    for (const auto& [address, allocation] : registered_) use(allocation);
    for (const auto& [handle, allocation] : arrays_) use(allocation);
    physical_.ForEachLive(use);
    code_.ForEachLive(use);
    graph_memory_.ForEachLive(use);
  }

 private:
  struct Pool {
    int device = 0;
    OwnerId owner = kOwnerUnknown;  // who allocated from it first
    uint64_t reserved = 0;          // as the driver said last; 0: never asked
    uint64_t live = 0;
    uint64_t kept = 0;  // reserved - live, as it stands in Totals
  };
  struct Totals {
    bool seen = false;
    uint64_t bytes = 0;
    uint64_t managed = 0;
    uint64_t managed_extent = 0;
    uint64_t released_shareable = 0;
    std::vector<uint64_t> pooled;  // by owner
    std::vector<uint64_t> by_owner;
    std::vector<bool> owner_seen;
  };
  using Table = absl::flat_hash_map<uint64_t, DeviceAllocation>;

  DeviceAllocation Make(const DeviceEvent& event, Layer layer);
  void Add(const DeviceAllocation& allocation);
  void Remove(const DeviceAllocation& allocation);
  void Insert(Table& table, uint64_t key, const DeviceAllocation& allocation);
  void Erase(Table& table, uint64_t key);
  void CreatePhysical(const DeviceEvent& event);
  void GiveBack(const std::vector<PhysicalMemory::Dropped>& dropped);
  void DestroyContext(const DeviceEvent& event);
  void AllocFromPool(const DeviceEvent& event);
  void SetPoolReserved(uint64_t key, uint64_t reserved);
  void Recount(Pool& pool);
  void LoadCode(const DeviceEvent& event);
  void ApplyGraph(const DeviceEvent& event);
  void SetGraphReserved(int device, uint64_t reserved, StackId asked_by);
  void CountBlocks(uint64_t address, uint64_t size, int device, bool add);
  Totals& TotalsOf(int device);
  [[nodiscard]] const Totals* FindTotals(int device) const;

  Owners& owners_;
  Groups groups_;
  const int default_device_;
  Table by_address_;  // device, managed and pinned host allocations
  Table registered_;  // host ranges pinned after the fact
  Table arrays_;      // by handle
  PhysicalMemory physical_;
  absl::flat_hash_map<uint64_t, Pool> pools_;  // by PoolKey()
  CodeMemory code_;
  GraphMemory graph_memory_;
  // Blocks that a managed allocation has a part of, and how many do.
  absl::flat_hash_map<uint64_t, uint64_t> managed_blocks_;
  std::vector<Totals> totals_;  // by device
  uint64_t host_bytes_ = 0;
  uint64_t unmatched_frees_ = 0;
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_DEVICE_LAYER_H_
