// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/fake_cupti.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

#define FAKE_EXPORT __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0;
constexpr int kMaxLimitReached = 12;
constexpr int kMultipleSubscribers = 39;
constexpr int kUnknown = 999;
constexpr uint32_t kMemory2 = 49;
constexpr uint32_t kMemoryPool = 50;
constexpr uint32_t kNobodyKnows = 4000;

// The layout is spelled out here again, independent of dstrace's.
struct Record {
  uint32_t kind;
  uint32_t operation;
  uint32_t memory_kind;
  uint32_t correlation_id;
  uint64_t address;
  uint64_t bytes;
  uint64_t rest[12];
};
static_assert(sizeof(Record) == 128);

struct State {
  uint32_t version = 130001;
  bool fail = false;
  std::set<uint32_t> enabled;
  FakeCuptiRequested requested = nullptr;
  FakeCuptiComplete completed = nullptr;
  uint8_t* buffer = nullptr;
  size_t size = 0;
  size_t used = 0;
  size_t dropped = 0;
  uint32_t correlation = 0;
  int flushes = 0;
  bool subscribed = false;

  State() {
    if (const char* text = std::getenv("FAKE_CUPTI_VERSION")) {
      version = static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
    }
    fail = std::getenv("FAKE_CUPTI_FAIL") != nullptr;
  }
};

std::recursive_mutex& Lock() {
  static auto& lock = *new std::recursive_mutex;
  return lock;
}
State& Get() {
  static auto& state = *new State;
  return state;
}

size_t SizeOf(uint32_t kind, uint32_t version) {
  if (kind == kMemoryPool) {
    return version >= 130000 ? 80 : version >= 17 ? 72 : 64;
  }
  if (kind != kMemory2) return 64;
  return version >= 24 ? 128 : version >= 17 ? 120 : 112;
}

void Complete() {
  State& state = Get();
  if (state.buffer == nullptr) return;
  uint8_t* buffer = state.buffer;
  const size_t size = state.size;
  const size_t used = state.used;
  state.buffer = nullptr;
  state.size = state.used = 0;
  if (state.completed) state.completed(nullptr, 0, buffer, size, used);
}

void Write(Record record) {
  const std::lock_guard lock(Lock());
  State& state = Get();
  if (state.enabled.count(record.kind) == 0 && record.kind != kNobodyKnows) {
    return;
  }
  const size_t size = SizeOf(record.kind, state.version);
  if (state.buffer != nullptr && state.used + size > state.size) Complete();
  if (state.buffer == nullptr && state.requested != nullptr) {
    size_t limit = 0;
    state.requested(&state.buffer, &state.size, &limit);
  }
  if (state.buffer == nullptr || state.used + size > state.size) {
    ++state.dropped;
    return;
  }
  std::memcpy(state.buffer + state.used, &record, size);
  state.used += size;
}

int Result() { return Get().fail ? kUnknown : kSuccess; }

}  // namespace

extern "C" {

FAKE_EXPORT void FakeCuptiMemory(uint32_t operation, uint32_t memory_kind,
                                 uint64_t address, uint64_t bytes) noexcept {
  Record record{};
  record.kind = kMemory2;
  record.operation = operation;
  record.memory_kind = memory_kind;
  record.correlation_id = ++Get().correlation;
  record.address = address;
  record.bytes = bytes;
  Write(record);
}
FAKE_EXPORT void FakeCuptiPool(uint32_t operation) noexcept {
  Record record{};
  record.kind = kMemoryPool;
  record.operation = operation;
  Write(record);
}
FAKE_EXPORT void FakeCuptiUnknown() noexcept {
  Record record{};
  record.kind = kNobodyKnows;
  Write(record);
}
FAKE_EXPORT bool FakeCuptiIsEnabled(uint32_t kind) noexcept {
  const std::lock_guard lock(Lock());
  return Get().enabled.count(kind) != 0;
}
FAKE_EXPORT const uint8_t* FakeCuptiCurrentBuffer() noexcept {
  return Get().buffer;
}
FAKE_EXPORT void* FakeCuptiCompleted() noexcept {
  return reinterpret_cast<void*>(Get().completed);
}
FAKE_EXPORT int FakeCuptiFlushes() noexcept { return Get().flushes; }
FAKE_EXPORT void FakeCuptiReset(uint32_t version, bool fail) noexcept {
  const std::lock_guard lock(Lock());
  Get() = State();
  Get().version = version;
  Get().fail = fail;
}

FAKE_EXPORT int cuptiGetVersion(uint32_t* version) noexcept {
  *version = Get().version;
  return kSuccess;
}
FAKE_EXPORT int cuptiSubscribe(void** subscriber, void*, void*) noexcept {
  if (Get().subscribed) return kMultipleSubscribers;
  if (Result() == kSuccess) Get().subscribed = true;
  *subscriber = &Get();
  return Result();
}
FAKE_EXPORT int cuptiSubscribe_v2(void** subscriber, void* callback,
                                  void* userdata, void*) noexcept {
  return cuptiSubscribe(subscriber, callback, userdata);
}
FAKE_EXPORT int cuptiUnsubscribe(void*) noexcept {
  Get().subscribed = false;
  return kSuccess;
}
FAKE_EXPORT int cuptiActivityRegisterCallbacks(
    FakeCuptiRequested requested, FakeCuptiComplete completed) noexcept {
  const std::lock_guard lock(Lock());
  Get().requested = requested;
  Get().completed = completed;
  return kSuccess;  // also without a driver
}
FAKE_EXPORT int cuptiActivityEnable(uint32_t kind) noexcept {
  const std::lock_guard lock(Lock());
  if (Result() == kSuccess) Get().enabled.insert(kind);
  return Result();
}
FAKE_EXPORT int cuptiActivityEnableContext(void*, uint32_t kind) noexcept {
  return cuptiActivityEnable(kind);
}
FAKE_EXPORT int cuptiActivityDisable(uint32_t kind) noexcept {
  const std::lock_guard lock(Lock());
  Get().enabled.erase(kind);
  return Result();
}
FAKE_EXPORT int cuptiActivityFlushAll(uint32_t) noexcept {
  const std::lock_guard lock(Lock());
  ++Get().flushes;
  Complete();
  return Result();
}
FAKE_EXPORT int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid,
                                           uint8_t** record) noexcept {
  uint8_t* next = buffer;
  if (*record != nullptr) {
    uint32_t kind = 0;
    std::memcpy(&kind, *record, sizeof kind);
    next = *record + SizeOf(kind, Get().version);
  }
  if (next >= buffer + valid) return kMaxLimitReached;
  *record = next;
  return kSuccess;
}
FAKE_EXPORT int cuptiActivityGetNumDroppedRecords(void*, uint32_t,
                                                  size_t* dropped) noexcept {
  const std::lock_guard lock(Lock());
  *dropped = Get().dropped;
  Get().dropped = 0;
  return kSuccess;
}
FAKE_EXPORT int cuptiFinalize() noexcept {
  const std::lock_guard lock(Lock());
  Complete();
  Get().enabled.clear();
  return kSuccess;
}

}  // extern "C"
