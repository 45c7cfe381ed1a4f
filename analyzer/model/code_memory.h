// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_CODE_MEMORY_H_
#define DSTRACE_ANALYZER_MODEL_CODE_MEMORY_H_

// CUDA's own memory: code, kernels' local memory, streams. Nobody is told its
// size; the recorder measures what the device loses around the calls that take
// it, and what comes back around those that give back.
//
// bytes() of a device is always the sum of what is live on it.
//
// Not thread-safe. Memory is proportional to the loads that are live.

#include <cstdint>
#include <vector>

#include "analyzer/model/device_allocation.h"

namespace dstrace::model {

class CodeMemory {
 public:
  // Of a device, not the host; `code.handle` names the module.
  void Load(const DeviceAllocation& code);

  // `size` came back with the end of the module `handle`: first of that module,
  // then of what was loaded last by whom ever, since lazily loaded kernels have
  // handles of their own. No more than there is.
  void Unload(int device, uint64_t handle, uint64_t size);

  // All of a device's goes with its primary context.
  void End(int device);

  [[nodiscard]] uint64_t bytes(int device) const;

  // Calls `use(const DeviceAllocation&)` for each load, in order of time.
  template <typename Use>
  void ForEachLive(Use use) const {
    for (const DeviceAllocation& code : live_) use(code);
  }

 private:
  std::vector<DeviceAllocation> live_;  // in order of time
  std::vector<uint64_t> bytes_;         // by device
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_CODE_MEMORY_H_
