// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/live_events.h"

#include <algorithm>

#include "preload/capture/recorder.h"

namespace dstrace::capture {
namespace {

using wire::DeviceEventFields;

// The analyzer takes an unknown device for its default one as well.
int DeviceOf(const DeviceEventFields& event) noexcept {
  const bool known = event.device >= 0 && event.device < LiveEvents::kDevices;
  return known ? static_cast<int>(event.device) : 0;
}

uint64_t PoolKey(const DeviceEventFields& event) noexcept {
  return event.pool != 0 ? event.pool
                         : static_cast<uint64_t>(DeviceOf(event)) + 1;
}

DeviceKind KindOf(const DeviceEventFields& event) noexcept {
  return static_cast<DeviceKind>(event.kind);
}

}  // namespace

static_assert(static_cast<uint32_t>(DeviceKind::kPhysicalRelease) == 7 &&
              static_cast<uint32_t>(DeviceKind::kPoolTrim) == 26 &&
              static_cast<uint32_t>(DeviceKind::kPhysicalRetain) == 30);

bool LiveEvents::FreesNothing(const DeviceEventFields& event) noexcept {
  switch (KindOf(event)) {
    case DeviceKind::kFree:
    case DeviceKind::kPoolFree:
    case DeviceKind::kHostFree:
      return records_.Find(event.address) == nullptr;
    case DeviceKind::kHostUnregister:
      return registered_.Find(event.address) == nullptr;
    case DeviceKind::kArrayDestroy:
      return arrays_.Find(event.handle) == nullptr;
    default:
      return false;
  }
}

bool LiveEvents::IsStale(const DeviceEventFields& event) noexcept {
  const Record* live = nullptr;
  switch (KindOf(event)) {
    case DeviceKind::kFree:
    case DeviceKind::kPoolFree:
    case DeviceKind::kHostFree:
      live = records_.Find(event.address);
      break;
    case DeviceKind::kHostUnregister:
      live = registered_.Find(event.address);
      break;
    case DeviceKind::kArrayDestroy:
      live = arrays_.Find(event.handle);
      break;
    case DeviceKind::kUnmap: {
      const Mapping* const mapping = mappings_.Find(event.address);
      return mapping != nullptr && mapping->event.time > event.time;
    }
    default:
      return false;
  }
  return live != nullptr && live->event.time > event.time;
}

bool LiveEvents::Apply(const DeviceEventFields& event, uint32_t thread,
                       bool ends_context) noexcept {
  switch (KindOf(event)) {
    case DeviceKind::kPoolAlloc:
      return Put(records_, event.address, event, thread) &&
             (event.offset == 0 || Reserved(event, thread));
    case DeviceKind::kAlloc:
    case DeviceKind::kManagedAlloc:
    case DeviceKind::kHostAlloc:
      return Put(records_, event.address, event, thread);
    case DeviceKind::kFree:
    case DeviceKind::kPoolFree:
    case DeviceKind::kHostFree:
      Drop(records_, event.address);
      return true;
    case DeviceKind::kHostRegister:
      return Put(registered_, event.address, event, thread);
    case DeviceKind::kHostUnregister:
      Drop(registered_, event.address);
      return true;
    case DeviceKind::kArrayCreate:
      return Put(arrays_, event.handle, event, thread);
    case DeviceKind::kArrayDestroy:
      Drop(arrays_, event.handle);
      return true;
    case DeviceKind::kModuleLoad:
      return Load(event, thread);
    case DeviceKind::kModuleUnload:
      Unload(event);
      return true;
    case DeviceKind::kPhysicalCreate:
      return Create(event, thread);
    case DeviceKind::kPhysicalRetain:
      return Retain(event);
    case DeviceKind::kPhysicalRelease:
      Release(event);
      return true;
    case DeviceKind::kMap:
      return Map(event, thread);
    case DeviceKind::kUnmap:
      Unmap(event.address, event.size);
      return true;
    case DeviceKind::kPoolTrim:
    case DeviceKind::kPoolDestroy:
      return Reserved(event, thread);
    case DeviceKind::kContextDestroy:
      if (ends_context) EndContext(DeviceOf(event));
      return true;
    default:
      return true;
  }
}

// Adds to, or takes from, what the driver holds on the event's device.
void LiveEvents::Hold(const DeviceEventFields& event, bool held) noexcept {
  const DeviceKind kind = KindOf(event);
  const bool on_device =
      kind == DeviceKind::kAlloc || kind == DeviceKind::kPoolAlloc ||
      kind == DeviceKind::kArrayCreate || kind == DeviceKind::kPhysicalCreate;
  if (!on_device || event.device == kDeviceHost) return;
  const uint64_t change = held ? event.size : -event.size;
  const auto device = static_cast<size_t>(DeviceOf(event));
  if (kind != DeviceKind::kPoolAlloc) {
    held_[device] += change;
    return;
  }
  Pool* const pool = pools_.Take(PoolKey(event));
  if (pool == nullptr) return;
  if (pool->thread == 0) pool->event = event;
  pool_held_[device] -= std::max(pool->live, pool->reserved);
  pool->live += change;
  pool_held_[device] += std::max(pool->live, pool->reserved);
}

bool LiveEvents::Put(OpenTable<Record>& table, uint64_t key,
                     const DeviceEventFields& event, uint32_t thread) noexcept {
  Drop(table, key);
  Record* const record = table.Take(key);
  if (record == nullptr) return key == 0;
  record->event = event;
  record->thread = thread;
  Hold(event, true);
  return true;
}

void LiveEvents::Drop(OpenTable<Record>& table, uint64_t key) noexcept {
  Record* const record = table.Find(key);
  if (record == nullptr) return;
  Hold(record->event, false);
  table.Erase(record);
}

bool LiveEvents::Load(const DeviceEventFields& event,
                      uint32_t thread) noexcept {
  if (event.size == 0) return true;  // nothing that an unload would give back
  Record* const record = code_.Take(event.handle);
  if (record == nullptr) return event.handle == 0;
  const uint64_t before = record->thread != 0 ? record->event.size : 0;
  record->event = event;
  record->event.size += before;
  record->thread = thread;
  return true;
}

// What was given back is of this module first, then of others of the device.
void LiveEvents::Unload(const DeviceEventFields& event) noexcept {
  uint64_t left = event.size;
  const auto take = [&left](Record& record) {
    const uint64_t part = std::min(record.event.size, left);
    record.event.size -= part;
    left -= part;
    return record.event.size == 0;
  };
  if (Record* const own = code_.Find(event.handle); own != nullptr) {
    if (take(*own)) code_.Erase(own);
  }
  const int device = DeviceOf(event);
  code_.EraseIf([&](Record& record) {
    return left > 0 && DeviceOf(record.event) == device && take(record);
  });
}

bool LiveEvents::Create(const DeviceEventFields& event,
                        uint32_t thread) noexcept {
  Handle* const handle = handles_.Take(event.handle);
  if (handle == nullptr) return event.handle == 0;
  Object* const object = objects_.Take(++last_object_);
  if (object == nullptr) return false;
  handle->object = last_object_;
  object->event = event;
  object->thread = thread;
  object->handles = 1;
  Hold(event, true);
  return true;
}

bool LiveEvents::Retain(const DeviceEventFields& event) noexcept {
  Handle* handle = handles_.Find(event.handle);
  if (handle == nullptr) {
    const Mapping* const mapping = mappings_.Find(event.address);
    if (mapping == nullptr) return true;  // another process's memory
    const uint64_t object = mapping->object;
    handle = handles_.Take(event.handle);
    if (handle == nullptr) return event.handle == 0;
    handle->object = object;
  }
  Object* const object = objects_.Find(handle->object);
  if (object != nullptr) ++object->handles;
  return true;
}

void LiveEvents::Release(const DeviceEventFields& event) noexcept {
  Handle* const handle = handles_.Find(event.handle);
  if (handle == nullptr) return;
  Object* const object = objects_.Find(handle->object);
  if (object == nullptr || object->handles <= 1) handles_.Erase(handle);
  if (object == nullptr) return;
  if (object->handles > 0) --object->handles;
  object->released = event.time;
  DropIfUnused(object);
}

bool LiveEvents::Map(const DeviceEventFields& event, uint32_t thread) noexcept {
  Unmap(event.address, event.size);
  Handle* const handle = handles_.Find(event.handle);
  Object* const object =
      handle == nullptr ? nullptr : objects_.Find(handle->object);
  if (object == nullptr) return true;  // no bytes of ours
  Mapping* const mapping = mappings_.Take(event.address);
  if (mapping == nullptr) return event.address == 0;
  mapping->event = event;
  mapping->thread = thread;
  mapping->object = object->key;
  ++object->mappings;
  return true;
}

void LiveEvents::Unmap(uint64_t address, uint64_t size) noexcept {
  const auto forget = [this](const Mapping& mapping) {
    Object* const object = objects_.Find(mapping.object);
    if (object == nullptr) return;
    --object->mappings;
    DropIfUnused(object);
  };
  Mapping* const first = mappings_.Find(address);
  if (first != nullptr && first->event.size >= size) {
    forget(*first);
    mappings_.Erase(first);
    return;
  }
  // A range of several mappings, or of none.
  mappings_.EraseIf([&](Mapping& mapping) {
    if (mapping.key - address >= size) return false;
    forget(mapping);
    return true;
  });
}

void LiveEvents::DropIfUnused(Object* object) noexcept {
  if (object->handles > 0 || object->mappings > 0) return;
  Hold(object->event, false);
  objects_.Erase(object);
}

bool LiveEvents::Reserved(const DeviceEventFields& event,
                          uint32_t thread) noexcept {
  Pool* const pool = pools_.Take(PoolKey(event));
  if (pool == nullptr) return false;
  const auto device = static_cast<size_t>(DeviceOf(event));
  pool_held_[device] -= std::max(pool->live, pool->reserved);
  pool->reserved = KindOf(event) == DeviceKind::kPoolDestroy ? 0 : event.offset;
  pool_held_[device] += std::max(pool->live, pool->reserved);
  pool->event = event;
  pool->thread = thread;
  if (pool->reserved == 0 && pool->live == 0) pools_.Erase(pool);
  return true;
}

void LiveEvents::EndContext(int64_t device) noexcept {
  const auto ends = [this, device](Record& record) {
    if (record.event.device == kDeviceHost ||
        KindOf(record.event) == DeviceKind::kHostAlloc ||
        DeviceOf(record.event) != device) {
      return false;
    }
    Hold(record.event, false);
    return true;
  };
  records_.EraseIf(ends);
  arrays_.EraseIf(ends);
}

uint64_t LiveEvents::HeldBytes(int device) const noexcept {
  return held_[device] + pool_held_[device];
}

void LiveEvents::Apply(int64_t device, uint64_t free_bytes,
                       uint64_t total_bytes) noexcept {
  const int index =
      device >= 0 && device < kDevices ? static_cast<int>(device) : 0;
  if (total_bytes == 0 || free_bytes > total_bytes) return;
  samples_[index] = {true, free_bytes, total_bytes, HeldBytes(index)};
}

LiveEvents::Sample LiveEvents::SampleOf(int device) const noexcept {
  Sample sample = samples_[device];
  if (!sample.known) return sample;
  const uint64_t now = HeldBytes(device);
  const uint64_t used = sample.total_bytes - sample.free_bytes;
  const uint64_t used_now =
      used + now > sample.held_bytes ? used + now - sample.held_bytes : 0;
  sample.free_bytes =
      sample.total_bytes - std::min(used_now, sample.total_bytes);
  sample.held_bytes = now;
  return sample;
}

void LiveEvents::Reset() noexcept {
  mutex_.ResetAfterFork();
  records_.Clear();
  registered_.Clear();
  arrays_.Clear();
  code_.Clear();
  objects_.Clear();
  handles_.Clear();
  mappings_.Clear();
  pools_.Clear();
  last_object_ = 0;
  for (int device = 0; device < kDevices; ++device) {
    held_[device] = pool_held_[device] = 0;
    samples_[device] = {};
  }
}

}  // namespace dstrace::capture
