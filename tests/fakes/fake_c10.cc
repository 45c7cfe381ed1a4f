// SPDX-License-Identifier: Apache-2.0
//
// The two functions of libc10.so that report torch's allocations. As in the
// real library they would tell torch's profiler; here they count.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace c10 {

struct Device {
  int8_t type;
  int8_t index;
};

std::atomic<uint64_t> g_reports{0};

__attribute__((visibility("default"), noinline)) void
reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, Device) {
  g_reports.fetch_add(1, std::memory_order_relaxed);
}
__attribute__((visibility("default"), noinline)) void
reportOutOfMemoryToProfiler(int64_t, size_t, size_t, Device) {
  g_reports.fetch_add(1, std::memory_order_relaxed);
}
// torch 1.x's mangling: the totals were signed.
__attribute__((visibility("default"), noinline)) void
reportMemoryUsageToProfiler(void*, int64_t, int64_t, int64_t, Device) {
  g_reports.fetch_add(1, std::memory_order_relaxed);
}
__attribute__((visibility("default"), noinline)) void
reportOutOfMemoryToProfiler(int64_t, int64_t, int64_t, Device) {
  g_reports.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace c10

extern "C" __attribute__((visibility("default"))) uint64_t
FakeC10ReportCount() {
  return c10::g_reports.load(std::memory_order_relaxed);
}
