// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/cupti_check.h"

#include <algorithm>
#include <numeric>
#include <string_view>

namespace dstrace::model {
namespace {

// CUpti_ActivityMemoryKind.
enum CuptiKind { kPinned = 2, kDevice = 3, kArray = 4, kManaged = 5 };

constexpr std::string_view kGraphQuestion = "cuDeviceGetGraphMemAttribute";

void Count(CuptiCheck::Sum& sum, uint64_t bytes) {
  ++sum.count;
  sum.bytes += bytes;
}

}  // namespace

// A handle is reused once its memory is gone.
void CuptiCounter::NoteHandle(const DeviceEvent& event) {
  const bool imported =
      event.kind == DeviceKind::kPhysicalRetain && event.flags == 1;
  if (imported || (event.kind == DeviceKind::kPhysicalCreate &&
                   event.device == kHostIndex)) {
    foreign_.insert(event.handle);
  } else if (event.kind == DeviceKind::kPhysicalCreate) {
    foreign_.erase(event.handle);
  }
}

void CuptiCounter::AddMapping(const DeviceEvent& event) {
  if (foreign_.contains(event.handle)) return;
  Count(hooks_.mapped, event.size);
  mappings_.push_back(event.size);
}

// The recorder asks what the nodes hold whenever that may have changed.
void CuptiCounter::AddGraphMemory(const DeviceEvent& event) {
  if (event.api != kGraphQuestion) return;
  if (event.device < 0 || event.device >= kMaxDevices) return;
  const auto device = static_cast<size_t>(event.device);
  if (device >= graph_bytes_.size()) graph_bytes_.resize(device + 1);
  const uint64_t before = graph_bytes_[device];
  graph_bytes_[device] = event.size;
  if (check_.ran && event.size > before) {
    Count(hooks_.graphs, event.size - before);
  }
}

// Were there mappings that are as many and as large as what CUPTI lacks?
void CuptiCounter::FindUnreported() {
  check_.unreported = {};
  const CuptiCheck::Sum hooks = HooksOnDevice(check_);
  const CuptiCheck::Sum& cupti = check_.cupti.device;
  if (check_.opened_unsized > 0 || check_.hooks.graphs.count > 0 ||
      hooks.count <= cupti.count || hooks.bytes <= cupti.bytes ||
      hooks.count - cupti.count > mappings_.size()) {
    return;
  }
  const auto missing = static_cast<ptrdiff_t>(hooks.count - cupti.count);
  const uint64_t bytes = hooks.bytes - cupti.bytes;
  std::sort(mappings_.begin(), mappings_.end());
  const uint64_t least = std::accumulate(
      mappings_.begin(), mappings_.begin() + missing, uint64_t{0});
  const uint64_t most =
      std::accumulate(mappings_.end() - missing, mappings_.end(), uint64_t{0});
  if (bytes < least || bytes > most) return;
  check_.unreported = {static_cast<uint64_t>(missing), bytes};
}

void CuptiCounter::Add(const DeviceEvent& event) {
  if (event.result != 0) return;
  NoteHandle(event);
  if (event.kind == DeviceKind::kGraph) return AddGraphMemory(event);
  if (!check_.ran) return;
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
    case DeviceKind::kMap:
      return AddMapping(event);
    case DeviceKind::kIpcOpen:
      sum = &hooks_.opened;
      if (event.size == 0) ++opened_unsized_;
      break;
    default:
      return;
  }
  Count(*sum, event.size);
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
  check_.cupti = {sum_of(kDevice),
                  sum_of(kManaged),
                  sum_of(kPinned),
                  sum_of(kArray),
                  {},
                  {},
                  {},
                  {}};
  check_.hooks = hooks_;
  check_.opened_unsized = opened_unsized_;
  FindUnreported();
}

}  // namespace dstrace::model
