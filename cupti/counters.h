// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_CUPTI_COUNTERS_H_
#define DSTRACE_CUPTI_COUNTERS_H_

// Adds up CUPTI's memory records.
//
// Thread-safety: thread-safe; a reader sees each number whole, the numbers of
// a record that is being added at that instant perhaps not all.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cupti/cupti_abi.h"
#include "preload/capture/recorder.h"

namespace dstrace::cupti {

class Counters {
 public:
  constexpr Counters() noexcept = default;

  // The `left` bytes from `record` on are the program's buffer's: a record
  // that would reach past them counts as unknown.
  void Add(const uint8_t* record, size_t left, RecordSizes sizes) noexcept;
  void AddDropped(uint64_t records) noexcept;
  [[nodiscard]] capture::CuptiTotals Read(uint32_t version,
                                          bool stopped) const noexcept;

 private:
  using Number = std::atomic<uint64_t>;
  struct Kind {
    Number allocations;
    Number allocated_bytes;
    Number frees;
    Number freed_bytes;
  };

  void AddMemory(const MemoryRecord& record) noexcept;

  Kind kinds_[capture::CuptiTotals::kKinds] = {};
  Number pool_operations_ = 0;
  Number correlated_ = 0;
  Number dropped_ = 0;
  Number unknown_ = 0;
};

}  // namespace dstrace::cupti

#endif  // DSTRACE_CUPTI_COUNTERS_H_
