// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/code_memory.h"

#include <cstddef>

namespace dstrace::model {

uint64_t CodeMemory::bytes(int device) const {
  if (device < 0 || static_cast<size_t>(device) >= bytes_.size()) return 0;
  return bytes_[static_cast<size_t>(device)];
}

void CodeMemory::Load(const DeviceAllocation& code) {
  const auto index = static_cast<size_t>(code.device);
  if (index >= bytes_.size()) bytes_.resize(index + 1);
  bytes_[index] += code.size;
  live_.push_back(code);
}

void CodeMemory::Unload(int device, uint64_t handle, uint64_t size) {
  uint64_t left = size;
  for (const bool same : {true, false}) {
    for (size_t i = live_.size(); i > 0 && left > 0; --i) {
      DeviceAllocation& code = live_[i - 1];
      if (code.device != device || (code.handle == handle) != same) continue;
      const uint64_t part = code.size < left ? code.size : left;
      code.size -= part;
      left -= part;
      bytes_[static_cast<size_t>(device)] -= part;
    }
  }
  std::erase_if(live_, [](const DeviceAllocation& c) { return c.size == 0; });
}

void CodeMemory::End(int device) {
  std::erase_if(live_, [&](const DeviceAllocation& code) {
    return code.device == device;
  });
  if (bytes(device) > 0) bytes_[static_cast<size_t>(device)] = 0;
}

}  // namespace dstrace::model
