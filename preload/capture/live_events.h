// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_LIVE_EVENTS_H_
#define DSTRACE_PRELOAD_CAPTURE_LIVE_EVENTS_H_

// What the driver holds for the process, as the events that made it so, for
// checkpoints of a file with a limit. Mirrors the analyzer's device layer.
//
// Thread-safety: the caller holds mutex().

#include <cstdint>

#include "preload/capture/open_table.h"
#include "preload/runtime/mutex.h"
#include "proto/wire/records.h"

namespace dstrace::capture {

class LiveEvents {
 public:
  static constexpr int kDevices = 64;

  // An event, with the thread it was recorded in. `event.time` is absolute.
  struct Record {
    uint64_t key;
    wire::DeviceEventFields event;
    uint32_t thread;
  };
  // cuMemGetInfo, with what the driver held for us at that instant.
  struct Sample {
    bool known;
    uint64_t free_bytes;
    uint64_t total_bytes;
    uint64_t held_bytes;
  };

  constexpr LiveEvents() noexcept = default;

  [[nodiscard]] runtime::Mutex& mutex() noexcept { return mutex_; }

  // Whether the event frees something that was allocated after it: the free is
  // stamped before its call, and the address may be another's by now.
  [[nodiscard]] bool IsStale(const wire::DeviceEventFields& event) noexcept;
  // Whether the event frees what is not live: an address given out and freed
  // again by another thread since the stamp, or one never seen.
  [[nodiscard]] bool FreesNothing(
      const wire::DeviceEventFields& event) noexcept;
  // Applies an event that succeeded. False: no memory, something will be
  // missing from checkpoints.
  [[nodiscard]] bool Apply(const wire::DeviceEventFields& event,
                           uint32_t thread, bool ends_context) noexcept;
  void Apply(int64_t device, uint64_t free_bytes,
             uint64_t total_bytes) noexcept;

  // Calls `visit(const DeviceEventFields&, uint32_t thread)` for events that
  // lead to what is live now. False where visit was once false.
  template <typename Visit>
  bool ForEach(uint64_t now, Visit visit) noexcept;
  // The last sample of a device as if taken now.
  [[nodiscard]] Sample SampleOf(int device) const noexcept;

  [[nodiscard]] size_t size() const noexcept {
    return records_.size() + registered_.size() + arrays_.size() +
           code_.size() + 2 * objects_.size() + mappings_.size() +
           pools_.size();
  }
  void Reset() noexcept;

 private:
  struct Object {  // of cuMemCreate
    uint64_t key;  // its number
    wire::DeviceEventFields event;
    uint32_t thread;
    uint32_t handles;
    uint32_t mappings;
    uint64_t released;  // when the last handle went
  };
  struct Handle {
    uint64_t key;
    uint64_t object;
  };
  struct Mapping {
    uint64_t key;  // address
    wire::DeviceEventFields event;
    uint32_t thread;
    uint64_t object;
  };
  struct Pool {
    uint64_t key;
    wire::DeviceEventFields event;  // the last one that told `reserved`
    uint32_t thread;
    uint64_t live;
    uint64_t reserved;
  };

  // Of DeviceKind in recorder.h.
  static constexpr uint32_t kRelease = 7;
  static constexpr uint32_t kTrim = 26;
  static constexpr uint32_t kRetain = 30;

  bool Put(OpenTable<Record>& table, uint64_t key,
           const wire::DeviceEventFields& event, uint32_t thread) noexcept;
  void Drop(OpenTable<Record>& table, uint64_t key) noexcept;
  bool Load(const wire::DeviceEventFields& event, uint32_t thread) noexcept;
  void Unload(const wire::DeviceEventFields& event) noexcept;
  bool Create(const wire::DeviceEventFields& event, uint32_t thread) noexcept;
  bool Retain(const wire::DeviceEventFields& event) noexcept;
  void Release(const wire::DeviceEventFields& event) noexcept;
  bool Map(const wire::DeviceEventFields& event, uint32_t thread) noexcept;
  void Unmap(uint64_t address, uint64_t size) noexcept;
  void DropIfUnused(Object* object) noexcept;
  bool Reserved(const wire::DeviceEventFields& event, uint32_t thread) noexcept;
  void EndContext(int64_t device) noexcept;
  void Hold(const wire::DeviceEventFields& event, bool held) noexcept;
  [[nodiscard]] uint64_t HeldBytes(int device) const noexcept;

  runtime::Mutex mutex_;
  OpenTable<Record> records_;     // by address
  OpenTable<Record> registered_;  // host ranges, by address
  OpenTable<Record> arrays_;      // by handle
  OpenTable<Record> code_;        // modules, by handle
  OpenTable<Object> objects_;
  OpenTable<Handle> handles_;
  OpenTable<Mapping> mappings_;
  OpenTable<Pool> pools_;
  uint64_t last_object_ = 0;
  uint64_t held_[kDevices] = {};       // beside pools
  uint64_t pool_held_[kDevices] = {};  // by pools
  Sample samples_[kDevices] = {};
};

template <typename Visit>
bool LiveEvents::ForEach(uint64_t now, Visit visit) noexcept {
  bool ok = true;
  const auto each = [&](const auto& entry) {
    ok = ok && visit(entry.event, entry.thread);
  };
  records_.ForEach(each);
  registered_.ForEach(each);
  arrays_.ForEach(each);
  code_.ForEach(each);
  // Events of one instant are read in this order.
  objects_.ForEach([&](const Object& object) {
    each(object);
    wire::DeviceEventFields event = object.event;
    event.size = 0;
    event.kind = kRetain;
    for (uint32_t i = 1; i < object.handles && ok; ++i) {
      ok = visit(event, object.thread);
    }
  });
  mappings_.ForEach(each);
  objects_.ForEach([&](const Object& object) {
    if (object.handles != 0 || !ok) return;
    wire::DeviceEventFields event = object.event;
    event.size = 0;
    event.kind = kRelease;
    event.time = object.released;
    ok = visit(event, object.thread);
  });
  pools_.ForEach([&](const Pool& pool) {
    wire::DeviceEventFields event = pool.event;
    event.kind = kTrim;  // tells what the pool has reserved
    event.time = now;
    event.address = event.size = 0;
    event.offset = pool.reserved;
    if (ok && pool.reserved != 0) ok = visit(event, pool.thread);
  });
  return ok;
}

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_LIVE_EVENTS_H_
