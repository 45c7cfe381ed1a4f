// SPDX-License-Identifier: Apache-2.0
#include "cupti/counters.h"

#include <cstring>

namespace dstrace::cupti {
namespace {

// relaxed everywhere: counters order nothing; the last totals are read after
// CUPTI's flush has returned.
void Increase(std::atomic<uint64_t>& number, uint64_t by) noexcept {
  number.fetch_add(by, std::memory_order_relaxed);
}
uint64_t Value(const std::atomic<uint64_t>& number) noexcept {
  return number.load(std::memory_order_relaxed);
}

}  // namespace

void Counters::AddMemory(const MemoryRecord& record) noexcept {
  if (record.memory_kind >= capture::CuptiTotals::kKinds) {
    Increase(unknown_, 1);
    return;
  }
  Kind& kind = kinds_[record.memory_kind];
  if (record.operation == kOperationAllocation) {
    Increase(kind.allocations, 1);
    Increase(kind.allocated_bytes, record.bytes);
  } else if (record.operation == kOperationRelease) {
    Increase(kind.frees, 1);
    Increase(kind.freed_bytes, record.bytes);
  } else {
    Increase(unknown_, 1);
    return;
  }
  if (record.correlation_id != 0) Increase(correlated_, 1);
}

void Counters::Add(const uint8_t* record, size_t left,
                   RecordSizes sizes) noexcept {
  uint32_t kind = 0;
  if (left >= sizeof kind) std::memcpy(&kind, record, sizeof kind);
  if (kind == kKindMemory2 && left >= sizes.memory) {
    MemoryRecord memory;
    std::memcpy(&memory, record, sizeof memory);
    AddMemory(memory);
  } else if (kind == kKindMemoryPool && left >= sizes.pool) {
    Increase(pool_operations_, 1);
  } else {
    Increase(unknown_, 1);
  }
}

void Counters::AddDropped(uint64_t records) noexcept {
  Increase(dropped_, records);
}

capture::CuptiTotals Counters::Read(uint32_t version,
                                    bool stopped) const noexcept {
  capture::CuptiTotals totals{};
  for (int i = 0; i < capture::CuptiTotals::kKinds; ++i) {
    totals.kinds[i] = {Value(kinds_[i].allocations),
                       Value(kinds_[i].allocated_bytes), Value(kinds_[i].frees),
                       Value(kinds_[i].freed_bytes)};
  }
  totals.version = version;
  totals.pool_operations = Value(pool_operations_);
  totals.correlated = Value(correlated_);
  totals.dropped = Value(dropped_);
  totals.unknown = Value(unknown_);
  totals.stopped = stopped;
  return totals;
}

}  // namespace dstrace::cupti
