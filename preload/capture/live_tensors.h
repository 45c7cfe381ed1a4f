// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_LIVE_TENSORS_H_
#define DSTRACE_PRELOAD_CAPTURE_LIVE_TENSORS_H_

// The blocks torch has handed out, for checkpoints of a file with a limit: 40
// bytes a block, at most 3/4 full.
//
// A record and its change of this table happen under one lock, that of the
// address's shard, and its time is taken under it. With all locks held, the
// table is what all records so far amount to.
//
// Thread-safety: the caller holds a shard's mutex, or all of them.

#include <atomic>
#include <cstdint>

#include "preload/capture/open_table.h"
#include "preload/runtime/mutex.h"

namespace dstrace::capture {

class LiveTensors {
 public:
  struct Tensor {
    uint64_t key;  // its address
    uint64_t size;
    uint64_t time;
    uint32_t stack;
    uint32_t device;  // type << 8 | index
    uint32_t thread;
  };

  struct alignas(64) Shard {
    runtime::Mutex mutex;
    OpenTable<Tensor> table;
    std::atomic<size_t> size{0};  // of the table; read without the lock

    // False: no memory, the block will be missing from checkpoints.
    [[nodiscard]] bool Add(const Tensor& tensor) noexcept {
      Tensor* const entry = table.Take(tensor.key);
      if (entry != nullptr) *entry = tensor;
      // relaxed: an estimate.
      size.store(table.size(), std::memory_order_relaxed);
      return entry != nullptr || tensor.key == 0;
    }
    void Remove(uint64_t address) noexcept {
      Tensor* const entry = table.Find(address);
      if (entry != nullptr) table.Erase(entry);
      size.store(table.size(), std::memory_order_relaxed);  // as above
    }
  };

  constexpr LiveTensors() noexcept = default;

  [[nodiscard]] Shard& Of(uint64_t address) noexcept {
    // Neighbours in different shards, by bits the tables do not use.
    return shards_[(address >> 9 ^ address >> 20) % kShards];
  }

  void LockAll() noexcept {
    for (Shard& shard : shards_) shard.mutex.Lock();
  }
  void UnlockAll() noexcept {
    for (Shard& shard : shards_) shard.mutex.Unlock();
  }

  // With all locks held.
  template <typename Visit>
  void ForEach(Visit visit) noexcept {
    for (Shard& shard : shards_) shard.table.ForEach(visit);
  }

  // Without a lock: about how many there are.
  [[nodiscard]] size_t size() const noexcept {
    size_t sum = 0;
    for (const Shard& shard : shards_) {
      sum += shard.size.load(std::memory_order_relaxed);  // an estimate
    }
    return sum;
  }

  void Reset() noexcept {
    for (Shard& shard : shards_) {
      shard.mutex.ResetAfterFork();
      shard.table.Clear();
      shard.size.store(0, std::memory_order_relaxed);  // one thread is left
    }
  }

 private:
  static constexpr size_t kShards = 16;
  Shard shards_[kShards];
};

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_LIVE_TENSORS_H_
