// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_DEVICE_ALLOCATION_H_
#define DSTRACE_ANALYZER_MODEL_DEVICE_ALLOCATION_H_

// What one call to the driver took, as far as the model remembers it.
//
// Plain value. Bytes as asked for; the driver's rounding is not visible.

#include <cstdint>

#include "analyzer/model/events.h"
#include "analyzer/model/owners.h"

namespace dstrace::model {

struct DeviceAllocation {
  uint64_t size = 0;
  uint64_t address = 0;  // of managed memory
  StackId stack = 0;
  OwnerId owner = kOwnerUnknown;
  int device = 0;  // kHostIndex: the host
  Layer layer = Layer::kDevice;
  uint64_t pool = 0;    // stream-ordered: which pool it came from
  uint64_t handle = 0;  // of code: its module
  GroupId group = kNoGroup;
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_DEVICE_ALLOCATION_H_
