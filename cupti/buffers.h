// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_CUPTI_BUFFERS_H_
#define DSTRACE_CUPTI_BUFFERS_H_

// The buffers that CUPTI fills for us: pages of our own, used again and never
// unmapped.
//
//   idle --Take()--> at CUPTI --Return()--> idle
//
// Thread-safety: thread-safe, no lock (CUPTI calls back under locks of its
// own).

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dstrace::cupti {

class Buffers {
 public:
  static constexpr size_t kBytes = size_t{1} << 20;
  static constexpr size_t kCount = 64;

  constexpr Buffers() noexcept = default;

  // Null where all are at CUPTI or no memory is left; CUPTI then drops
  // records and counts them.
  [[nodiscard]] uint8_t* Take() noexcept;
  void Return(const uint8_t* buffer) noexcept;
  // True for a buffer of ours, wherever it is.
  [[nodiscard]] bool Owns(const uint8_t* buffer) const noexcept;

 private:
  enum class State : uint32_t { kUnmapped, kIdle, kTaken };
  struct Entry {
    std::atomic<State> state;
    std::atomic<uint8_t*> pages;
  };
  Entry entries_[kCount] = {};
};

}  // namespace dstrace::cupti

#endif  // DSTRACE_CUPTI_BUFFERS_H_
