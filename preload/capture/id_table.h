// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_ID_TABLE_H_
#define DSTRACE_PRELOAD_CAPTURE_ID_TABLE_H_

// From a key to a small number: open addressing in memory of our own, 24 bytes
// an entry at most 3/4 full. Only the keys are kept, never the things. The
// number of keys is limited, and with it the memory: 96 MiB a table.
//
// Thread-safety: none; Definitions holds its lock.

#include <cstddef>
#include <cstdint>

#include "preload/capture/hash.h"
#include "preload/capture/table_swap.h"
#include "preload/runtime/memory.h"

namespace dstrace::capture {

class IdTable {
 public:
  static constexpr uint32_t kMaxIds = 3u << 20;

  constexpr IdTable() noexcept = default;
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;

  // 0 where the key is not in the table.
  [[nodiscard]] uint32_t Find(const Key& key) const noexcept {
    return capacity_ == 0 ? 0 : entries_[Probe(key)].id;
  }

  // Gives the next id (1, 2, ...) to a key that is not in the table; 0 where
  // there is no memory or the table is at its limit.
  [[nodiscard]] uint32_t Add(const Key& key) noexcept {
    if (is_full()) return 0;
    if ((size_ + 1) * 4 > capacity_ * 3 && !Grow()) return 0;
    entries_[Probe(key)] = {key, ++size_};
    return size_;
  }

  [[nodiscard]] uint32_t size() const noexcept { return size_; }

  // No key is added beyond this many; at most kMaxIds.
  void set_limit(uint32_t limit) noexcept {
    limit_ = limit < kMaxIds ? limit : kMaxIds;
  }
  [[nodiscard]] bool is_full() const noexcept { return size_ >= limit_; }

  // Also in a child of fork(), which may find it in the middle of a change.
  void Clear() noexcept {
    Entry* const old = entries_;
    const size_t old_capacity = capacity_;
    SwapTable<Entry>(entries_, capacity_, nullptr, 0);
    size_ = 0;
    runtime::UnmapPages(old, old_capacity * sizeof(Entry));
  }

 private:
  struct Entry {
    Key key;
    uint32_t id;
  };
  static constexpr size_t kFirstCapacity = 4096;

  // The key's entry, or the empty one where it would go.
  [[nodiscard]] size_t Probe(const Key& key) const noexcept {
    size_t at = key.low & (capacity_ - 1);
    while (entries_[at].id != 0 && entries_[at].key != key) {
      at = (at + 1) & (capacity_ - 1);
    }
    return at;
  }

  bool Grow() noexcept {
    const size_t capacity = capacity_ == 0 ? kFirstCapacity : capacity_ * 2;
    auto* const grown =
        static_cast<Entry*>(runtime::MapPages(capacity * sizeof(Entry)));
    if (grown == nullptr) return false;
    Entry* const old = entries_;
    const size_t old_capacity = capacity_;
    SwapTable(entries_, capacity_, grown, capacity);
    for (size_t i = 0; i < old_capacity; ++i) {
      if (old[i].id != 0) entries_[Probe(old[i].key)] = old[i];
    }
    runtime::UnmapPages(old, old_capacity * sizeof(Entry));
    return true;
  }

  Entry* entries_ = nullptr;
  size_t capacity_ = 0;
  uint32_t size_ = 0;
  uint32_t limit_ = kMaxIds;
};

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_ID_TABLE_H_
