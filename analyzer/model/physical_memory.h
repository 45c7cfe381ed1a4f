// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_PHYSICAL_MEMORY_H_
#define DSTRACE_ANALYZER_MODEL_PHYSICAL_MEMORY_H_

// Physical memory (cuMemCreate): which objects there are, and what holds them.
//
//   handle  --.
//   handle  ---+--> object <--+-- mapping of a range of addresses
//                              `-- mapping ...
//
// An object lives as long as a handle or a mapping holds it: a release while
// mapped gives nothing back before the unmap, and the other way round. So
//
//   - each object that was created is handed back exactly once: by the Release,
//     Unmap or Map that took its last holder away
//   - a handle's number may be given again while its old object is still
//     mapped: that one goes on, and the number means the new object from then
//   - what another process made (an imported handle) is followed but never
//     handed back nor shown: its bytes are not ours
//
// Not thread-safe. Knows no totals; whoever owns this keeps them, from what it
// puts in and what comes back. Calls that make no sense (a mapping of a handle
// that was never seen) do no harm: a trace may begin in the middle.

#include <cstdint>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "analyzer/model/device_allocation.h"

namespace dstrace::model {

class PhysicalMemory {
 public:
  // Memory that nothing in this process holds any longer.
  struct Dropped {
    DeviceAllocation allocation;
    bool shareable = false;  // another process may still have it open
  };

  // `shareable`: it was made so that it can be exported.
  void Create(uint64_t handle, const DeviceAllocation& allocation,
              bool shareable);

  // One more holder behind `handle`: of its object, or else of what is mapped
  // at `address` (0: not known), or else of another process's memory.
  void Retain(uint64_t handle, uint64_t address);

  [[nodiscard]] std::vector<Dropped> Release(uint64_t handle);

  // What was mapped in the range before must have been unmapped unseen.
  [[nodiscard]] std::vector<Dropped> Map(uint64_t address, uint64_t size,
                                         uint64_t handle);

  // Ends the mappings that begin in the range, and the one at `address`
  // whatever the size.
  [[nodiscard]] std::vector<Dropped> Unmap(uint64_t address, uint64_t size);

  // Releases of handles that were not known, or no longer.
  [[nodiscard]] uint64_t unmatched_releases() const {
    return unmatched_releases_;
  }

  // Calls `use(const DeviceAllocation&)` for all of this process's objects.
  template <typename Use>
  void ForEachLive(Use use) const {
    for (const auto& [id, object] : objects_) {
      if (!object.foreign) use(object.allocation);
    }
  }

 private:
  using ObjectId = uint64_t;  // from 1
  struct Object {
    DeviceAllocation allocation;
    uint64_t handles = 0;
    uint64_t mappings = 0;
    bool shareable = false;
    bool foreign = false;  // imported: the bytes are another process's
  };

  ObjectId ForeignOrMappedAt(uint64_t address);
  void DropIfUnused(ObjectId id, std::vector<Dropped>* dropped);

  absl::flat_hash_map<ObjectId, Object> objects_;
  absl::flat_hash_map<uint64_t, ObjectId> handles_;
  // The object of each mapping by its address; 0: of a handle never seen.
  std::map<uint64_t, ObjectId> mappings_;
  ObjectId last_object_ = 0;
  uint64_t unmatched_releases_ = 0;
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_PHYSICAL_MEMORY_H_
