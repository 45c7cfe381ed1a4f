// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/cupti_check.h"

namespace dstrace::model {
namespace {

// CUpti_ActivityMemoryKind.
enum CuptiKind { kPinned = 2, kDevice = 3, kArray = 4, kManaged = 5 };

}  // namespace

void CuptiCounter::Add(const DeviceEvent& event) {
  if (!check_.ran || event.result != 0) return;
  CuptiCheck::Sum* sum = nullptr;
  switch (event.kind) {
    case DeviceKind::kAlloc:
    case DeviceKind::kPoolAlloc:
      sum = &hooks_.device;
      break;
    case DeviceKind::kManagedAlloc:
      sum = &hooks_.managed;
      break;
    case DeviceKind::kHostAlloc:
    case DeviceKind::kHostRegister:  // CUPTI counts it as an allocation
      sum = &hooks_.pinned;
      break;
    case DeviceKind::kArrayCreate:
      sum = &hooks_.array;
      break;
    case DeviceKind::kPhysicalCreate:
      sum = &hooks_.physical;
      break;
    default:
      return;
  }
  ++sum->count;
  sum->bytes += event.size;
}

void CuptiCounter::Add(const CuptiTotals& totals) {
  check_.ran = true;
  check_.version = totals.version;
  check_.stopped = totals.stopped;
  check_.dropped = totals.dropped;
  check_.unknown = totals.unknown;
  check_.pool_operations = totals.pool_operations;
  const auto sum_of = [&totals](CuptiKind kind) {
    const CuptiTotals::Kind& from = totals.kinds[kind];
    return CuptiCheck::Sum{from.allocations, from.allocated_bytes};
  };
  check_.cupti = {
      sum_of(kDevice), sum_of(kManaged), sum_of(kPinned), sum_of(kArray), {}};
  check_.hooks = hooks_;
}

}  // namespace dstrace::model
