// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/segments.h"

#include <algorithm>

namespace dstrace::deepspeed {

using model::DeviceKind;

void Segments::Apply(const model::DeviceEvent& event) {
  if (event.result != 0) return;
  switch (event.kind) {
    case DeviceKind::kAlloc:
    case DeviceKind::kMap:
      segments_[event.address] = {event.size, event.stack};
      return;
    case DeviceKind::kFree:
      segments_.erase(event.address);
      return;
    case DeviceKind::kUnmap:
      Unmap(event.address, event.size);
      return;
    default:
      return;
  }
}

// One unmapping may take back several mappings.
void Segments::Unmap(uint64_t address, uint64_t size) {
  auto first = segments_.lower_bound(address);
  auto last = segments_.lower_bound(address + std::max<uint64_t>(size, 1));
  segments_.erase(first, last);
}

std::vector<std::pair<model::StackId, int64_t>> Segments::Empty() const {
  absl::flat_hash_map<model::StackId, int64_t> empty;
  for (const auto& [address, segment] : segments_) {
    empty[segment.stack] += static_cast<int64_t>(segment.size);
  }
  for (const auto& [address, size] : tensors_) {
    auto after = segments_.upper_bound(address);
    uint64_t left = size;
    // A tensor of an expandable segment may lie across several mappings.
    for (auto at = after == segments_.begin() ? after : std::prev(after);
         at != segments_.end() && at->first < address + size && left > 0;
         ++at) {
      uint64_t begin = std::max(address, at->first);
      uint64_t end = std::min(address + size, at->first + at->second.size);
      if (begin >= end) continue;
      empty[at->second.stack] -= static_cast<int64_t>(end - begin);
      left -= end - begin;
    }
  }
  std::vector<std::pair<model::StackId, int64_t>> sorted;
  for (const auto& [stack, bytes] : empty) {
    if (bytes > 0) sorted.emplace_back(stack, bytes);
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return sorted;
}

}  // namespace dstrace::deepspeed
