// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/graph_memory.h"

#include <cstddef>

namespace dstrace::model {
namespace {

using Weights = std::vector<std::pair<StackId, uint64_t>>;

// `whole` in parts as `weights` (none of it empty) are to each other.
std::vector<uint64_t> Share(uint64_t whole, const Weights& weights) {
  uint64_t sum = 0;
  size_t largest = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i].second;
    if (weights[i].second > weights[largest].second) largest = i;
  }
  std::vector<uint64_t> parts;
  uint64_t left = whole;
  for (const auto& [stack, weight] : weights) {
    const double share = static_cast<double>(weight) / static_cast<double>(sum);
    const auto part = static_cast<uint64_t>(static_cast<double>(whole) * share);
    parts.push_back(part < left ? part : left);
    left -= parts.back();
  }
  parts[largest] += left;
  return parts;
}

}  // namespace

void GraphMemory::AddNode(int device, StackId stack, uint64_t address,
                          uint64_t size) {
  addresses_.insert(address);
  if (device == kHostIndex) return;
  uint64_t& largest = nodes_[{device, stack}];
  if (largest < size) largest = size;
}

bool GraphMemory::TakeAddress(uint64_t address) {
  return addresses_.erase(address) > 0;
}

std::vector<DeviceAllocation> GraphMemory::EndShares(int device) {
  std::vector<DeviceAllocation> ended;
  std::erase_if(shares_, [&](const DeviceAllocation& share) {
    if (share.device != device) return false;
    ended.push_back(share);
    return true;
  });
  return ended;
}

std::vector<DeviceAllocation> GraphMemory::MakeShares(int device,
                                                      uint64_t reserved,
                                                      StackId asked_by,
                                                      OwnerId owner) {
  Weights weights;
  for (const auto& [key, largest] : nodes_) {
    if (key.first == device) weights.emplace_back(key.second, largest);
  }
  if (weights.empty()) weights.emplace_back(asked_by, 1);
  const std::vector<uint64_t> parts = Share(reserved, weights);
  std::vector<DeviceAllocation> made;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (parts[i] == 0) continue;
    DeviceAllocation share;
    share.size = parts[i];
    share.stack = weights[i].first;
    share.owner = owner;
    share.device = device;
    made.push_back(share);
  }
  shares_.insert(shares_.end(), made.begin(), made.end());
  return made;
}

}  // namespace dstrace::model
