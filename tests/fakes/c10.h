// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_FAKES_C10_H_
#define DSTRACE_TESTS_FAKES_C10_H_

// torch's report of a tensor's allocation (size > 0) or free, as programs that
// stand in for torch's allocator call it; see fake_c10.cc.

#include <cstddef>
#include <cstdint>

namespace c10 {

struct Device {
  int8_t type;
  int8_t index;
};
void reportMemoryUsageToProfiler(void* block, int64_t size, size_t allocated,
                                 size_t reserved, Device device);

}  // namespace c10

#endif  // DSTRACE_TESTS_FAKES_C10_H_
