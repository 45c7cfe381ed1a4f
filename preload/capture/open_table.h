// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_OPEN_TABLE_H_
#define DSTRACE_PRELOAD_CAPTURE_OPEN_TABLE_H_

// Values by a 64-bit key that is not 0, in memory of our own: linear probing,
// at most 3/4 full; an erased entry's followers move up, so that tables that
// live for weeks do not fill with tombstones.
//
// `Entry` is trivially copyable and has a member `uint64_t key`. Pointers to
// entries hold until the next change. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "preload/capture/table_swap.h"
#include "preload/runtime/hot.h"
#include "preload/runtime/memory.h"

namespace dstrace::capture {

template <typename Entry>
class OpenTable {
  static_assert(std::is_trivially_copyable_v<Entry>);

 public:
  constexpr OpenTable() noexcept = default;
  OpenTable(const OpenTable&) = delete;
  OpenTable& operator=(const OpenTable&) = delete;

  [[nodiscard]] Entry* Find(uint64_t key) noexcept {
    if (capacity_ == 0 || key == 0) return nullptr;
    Entry& entry = entries_[Probe(key)];
    return entry.key == 0 ? nullptr : &entry;
  }

  DSTRACE_PREFETCH void Prefetch(uint64_t key) const noexcept {
    if (capacity_ != 0) runtime::Prefetch(&entries_[Home(key)]);
  }

  // The entry of `key`, fresh or not, with its key set; nullptr where there is
  // no memory.
  [[nodiscard]] Entry* Take(uint64_t key) noexcept {
    if (key == 0) return nullptr;
    if (Entry* const known = Find(key); known != nullptr) return known;
    if ((size_ + 1) * 4 > capacity_ * 3 && !Grow()) return nullptr;
    Entry& entry = entries_[Probe(key)];
    ++size_;
    entry = Entry{};
    entry.key = key;
    return &entry;
  }

  void Erase(Entry* entry) noexcept {
    auto hole = static_cast<size_t>(entry - entries_);
    --size_;
    for (size_t at = Next(hole); entries_[at].key != 0; at = Next(at)) {
      // It may move up where its home is not between the hole and its place.
      const size_t home = Home(entries_[at].key);
      if (((at - home) & (capacity_ - 1)) < ((at - hole) & (capacity_ - 1))) {
        continue;
      }
      entries_[hole] = entries_[at];
      hole = at;
    }
    entries_[hole].key = 0;
  }

  // Calls `visit(Entry&)` for each. No changes meanwhile.
  template <typename Visit>
  void ForEach(Visit visit) noexcept {
    for (size_t i = 0; i < capacity_; ++i) {
      if (entries_[i].key != 0) visit(entries_[i]);
    }
  }

  // Erases each entry that `should(Entry&)` says so of.
  template <typename Should>
  void EraseIf(Should should) noexcept {
    for (size_t i = 0; i < capacity_;) {
      if (entries_[i].key != 0 && should(entries_[i])) {
        Erase(&entries_[i]);  // another one may have moved here
      } else {
        ++i;
      }
    }
  }

  [[nodiscard]] size_t size() const noexcept { return size_; }

  // Erases all, and keeps the memory if so much of it was used.
  void Empty() noexcept {
    if (size_ * 16 < capacity_) {
      Clear();
    } else if (size_ != 0) {
      std::memset(static_cast<void*>(entries_), 0, capacity_ * sizeof(Entry));
      size_ = 0;
    }
  }

  // Also in a child of fork(), which may find it in the middle of a change.
  void Clear() noexcept {
    Entry* const old = entries_;
    const size_t old_capacity = capacity_;
    SwapTable<Entry>(entries_, capacity_, nullptr, 0);
    size_ = 0;
    runtime::UnmapPages(old, old_capacity * sizeof(Entry));
  }

 private:
  static constexpr size_t kFirstCapacity = 64;

  // Addresses are multiples of 512 and close together.
  [[nodiscard]] size_t Home(uint64_t key) const noexcept {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 20) &
           (capacity_ - 1);
  }
  [[nodiscard]] size_t Next(size_t at) const noexcept {
    return (at + 1) & (capacity_ - 1);
  }
  [[nodiscard]] size_t Probe(uint64_t key) const noexcept {
    size_t at = Home(key);
    while (entries_[at].key != 0 && entries_[at].key != key) at = Next(at);
    return at;
  }

  bool Grow() noexcept {
    const size_t old_capacity = capacity_;
    const size_t capacity = capacity_ == 0 ? kFirstCapacity : capacity_ * 2;
    auto* const grown =
        static_cast<Entry*>(runtime::MapPages(capacity * sizeof(Entry)));
    if (grown == nullptr) return false;
    Entry* const old = entries_;
    SwapTable(entries_, capacity_, grown, capacity);
    for (size_t i = 0; i < old_capacity; ++i) {
      if (old[i].key != 0) entries_[Probe(old[i].key)] = old[i];
    }
    runtime::UnmapPages(old, old_capacity * sizeof(Entry));
    return true;
  }

  Entry* entries_ = nullptr;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_OPEN_TABLE_H_
