// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/physical_memory.h"

#include <limits>

namespace dstrace::model {

void PhysicalMemory::Create(uint64_t handle, const DeviceAllocation& allocation,
                            bool shareable) {
  Object object;
  object.allocation = allocation;
  object.handles = 1;
  object.shareable = shareable;
  const ObjectId id = ++last_object_;
  objects_.emplace(id, object);
  handles_[handle] = id;
}

PhysicalMemory::ObjectId PhysicalMemory::ForeignOrMappedAt(uint64_t address) {
  const auto mapping = mappings_.find(address);
  if (address != 0 && mapping != mappings_.end() &&
      objects_.contains(mapping->second)) {
    return mapping->second;
  }
  const ObjectId id = ++last_object_;
  objects_[id].foreign = true;
  return id;
}

void PhysicalMemory::Retain(uint64_t handle, uint64_t address) {
  auto known = handles_.find(handle);
  if (known == handles_.end()) {
    known = handles_.emplace(handle, ForeignOrMappedAt(address)).first;
  }
  const auto object = objects_.find(known->second);
  if (object != objects_.end()) ++object->second.handles;
}

std::vector<PhysicalMemory::Dropped> PhysicalMemory::Release(uint64_t handle) {
  std::vector<Dropped> dropped;
  const auto found = handles_.find(handle);
  if (found == handles_.end()) {
    ++unmatched_releases_;
    return dropped;
  }
  const ObjectId id = found->second;
  const auto object = objects_.find(id);
  if (object == objects_.end()) {
    handles_.erase(found);
    return dropped;
  }
  if (object->second.handles > 0) --object->second.handles;
  if (object->second.handles == 0) handles_.erase(found);
  DropIfUnused(id, &dropped);
  return dropped;
}

std::vector<PhysicalMemory::Dropped> PhysicalMemory::Map(uint64_t address,
                                                         uint64_t size,
                                                         uint64_t handle) {
  const auto known = handles_.find(handle);
  const ObjectId id = known == handles_.end() ? 0 : known->second;
  std::vector<Dropped> dropped = Unmap(address, size);
  mappings_[address] = id;
  const auto object = objects_.find(id);
  if (object != objects_.end()) ++object->second.mappings;
  return dropped;
}

std::vector<PhysicalMemory::Dropped> PhysicalMemory::Unmap(uint64_t address,
                                                           uint64_t size) {
  std::vector<Dropped> dropped;
  const uint64_t room = std::numeric_limits<uint64_t>::max() - address;
  const uint64_t end = address + (size < room ? size : room);
  auto at = mappings_.lower_bound(address);
  while (at != mappings_.end() && (at->first < end || at->first == address)) {
    const ObjectId id = at->second;
    at = mappings_.erase(at);
    const auto object = objects_.find(id);
    if (object == objects_.end()) continue;
    --object->second.mappings;
    DropIfUnused(id, &dropped);
  }
  return dropped;
}

void PhysicalMemory::DropIfUnused(ObjectId id, std::vector<Dropped>* dropped) {
  const auto object = objects_.find(id);
  const Object& unused = object->second;
  if (unused.handles > 0 || unused.mappings > 0) return;
  if (!unused.foreign) {
    dropped->push_back({unused.allocation, unused.shareable});
  }
  objects_.erase(object);
}

}  // namespace dstrace::model
