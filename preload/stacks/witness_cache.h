// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_WITNESS_CACHE_H_
#define DSTRACE_PRELOAD_STACKS_WITNESS_CACHE_H_

// From a witnessed stack to its id, for one thread.
//
// Stacks with the same key (the caller's: where the hook's frame is and what
// Python runs) can still differ in their native frames. Where the one stored
// under a key does not match, the place and word where it stops matching lead
// on to another key:
//
//   key -> [witness A] differs at word 12, which is X -> key' -> [witness B]
//
// Making a witness costs as much as a hundred unwinds, so they are paid for:
// from a stock to start with, by hits (each saves an unwind) and, a little, by
// misses. A thread whose stacks never come back spends under a tenth more.
//
// Memory: lies in zeroed pages, touched only as it fills; the oldest witnesses
// make room for new ones. Thread-safety: none, one per thread.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "preload/stacks/stack_witness.h"

namespace dstrace::stacks {

class WitnessCache {
 public:
  struct Key {
    uint64_t low;
    uint64_t high;
    friend bool operator==(const Key&, const Key&) = default;
  };

  // The id of the stack above `frame`, 0 if none is known; then `*key` is where
  // to add it.
  [[nodiscard]] uint32_t Find(Key* key, const void* frame) noexcept {
    for (int step = 0; step < kMaxSteps; ++step) {
      const Entry* const found_entry = EntryOf(*key);
      if (found_entry == nullptr) return 0;
      const Entry& entry = *found_entry;
      const uint64_t* const words = storage_ + entry.start % kStorage;
      uint64_t found = 0;
      const uint32_t mismatch = FirstMismatch(
          frame, reinterpret_cast<const uint32_t*>(words + entry.count), words,
          entry.count, &found);
      if (__builtin_expect(mismatch == entry.count, 1)) {
        balance_ += kHitCredit;
        ++hits_;
        return entry.id;
      }
      *key = Next(*key, mismatch, found);
    }
    return 0;
  }

  // Whether a witness may be made now; takes its price.
  [[nodiscard]] bool PayForWitness() noexcept {
    balance_ += kMissCredit;
    if (balance_ > kStock) balance_ = kStock;
    if (balance_ - kWitnessPrice < -kStock) return false;
    balance_ -= kWitnessPrice;
    ++made_;
    return true;
  }

  void Add(const Key& key, const StackWitness& witness, uint32_t id) noexcept;

  [[nodiscard]] uint64_t hits() const noexcept { return hits_; }
  // Witnesses that were paid for.
  [[nodiscard]] uint64_t made() const noexcept { return made_; }

 private:
  struct Entry {
    Key key;
    uint64_t start;  // in storage_, counted from the beginning of time
    uint32_t count;
    uint32_t id;
  };
  // Room for some two thousand stacks: a step of a large model has several
  // hundred, and each that does not fit is unwound again and again.
  static constexpr uint32_t kSets = 4096;
  static constexpr uint32_t kStorage = 1 << 18;  // words: 2 MiB
  static constexpr int kMaxSteps = 16;
  // In units of what one miss earns.
  static constexpr int64_t kWitnessPrice = 1024;
  static constexpr int64_t kStock = 256 * kWitnessPrice;
  static constexpr int64_t kHitCredit = 8;
  static constexpr int64_t kMissCredit = 1;

  [[nodiscard]] bool IsOverwritten(const Entry& entry) const noexcept {
    return used_ - entry.start > kStorage;
  }
  [[nodiscard]] const Entry* EntryOf(const Key& key) const noexcept {
    const Entry* const set = entries_[key.low % kSets];
    for (int way = 0; way < 2; ++way) {
      if (set[way].key == key) {
        return IsOverwritten(set[way]) ? nullptr : &set[way];
      }
    }
    return nullptr;
  }
  static Key Next(const Key& key, uint32_t mismatch, uint64_t found) noexcept;

  uint64_t used_;
  uint64_t hits_;
  uint64_t made_;
  int64_t balance_;  // 0 to begin with, down to -kStock
  Entry entries_[kSets][2];
  uint64_t storage_[kStorage];
};

static_assert(std::is_trivially_default_constructible_v<WitnessCache>);
static_assert(std::is_trivially_destructible_v<WitnessCache>);

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_WITNESS_CACHE_H_
