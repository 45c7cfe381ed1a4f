// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/fake_torch.h"

#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "preload/hooks/cuda_abi.h"

#define FAKE_EXPORT __attribute__((visibility("default")))

using dstrace::hooks::cudaError_t;
using dstrace::hooks::cudaEvent_t;
using dstrace::hooks::cudaStream_t;

extern "C" {
cudaError_t cudaMalloc(void** out, size_t size);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
}

namespace c10 {
struct Device {
  int8_t type;
  int8_t index;
};
void reportMemoryUsageToProfiler(void* block, int64_t size, size_t allocated,
                                 size_t reserved, Device device);
void reportOutOfMemoryToProfiler(int64_t size, size_t allocated,
                                 size_t reserved, Device device);
}  // namespace c10

namespace {

constexpr size_t kMinBlock = 512;
constexpr size_t kSmallSize = size_t{1} << 20;
constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kLargeSegment = size_t{20} << 20;
constexpr size_t kMinLarge = size_t{10} << 20;
constexpr size_t kLargeRound = size_t{2} << 20;
constexpr c10::Device kCuda = {1, 0};

struct Block {
  char* address;
  size_t size;
  bool small;
  bool free;
  Block* before;  // in its segment
  Block* after;
  std::vector<void*> streams;
};

struct Pending {
  cudaEvent_t event;
  Block* block;
  int* left;  // events of the block still to come
};

class Allocator {
 public:
  void* Malloc(size_t bytes) {
    const std::lock_guard lock(mutex_);
    ProcessEvents();
    const size_t size = (bytes + kMinBlock - 1) / kMinBlock * kMinBlock;
    if (size == 0) return nullptr;
    Block* block = TakeFree(size);
    if (block == nullptr) block = NewSegment(size);
    if (block == nullptr) {
      c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), allocated_,
                                       reserved_, kCuda);
      return nullptr;
    }
    Split(block, size);
    block->free = false;
    live_[block->address] = block;
    allocated_ += block->size;
    c10::reportMemoryUsageToProfiler(block->address,
                                     static_cast<int64_t>(block->size),
                                     allocated_, reserved_, kCuda);
    return block->address;
  }

  void Free(void* address) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(static_cast<char*>(address));
    if (found == live_.end()) return;
    Block* block = found->second;
    live_.erase(found);
    allocated_ -= block->size;
    const size_t size = block->size;
    if (block->streams.empty()) {
      MakeFree(block);
    } else {
      InsertEvents(block);
    }
    c10::reportMemoryUsageToProfiler(address, -static_cast<int64_t>(size),
                                     allocated_, reserved_, kCuda);
  }

  void RecordStream(void* address, void* stream) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(static_cast<char*>(address));
    if (found != live_.end()) found->second->streams.push_back(stream);
  }

  void EmptyCache() {
    const std::lock_guard lock(mutex_);
    ProcessEvents();
    for (auto entry = free_.begin(); entry != free_.end();) {
      Block* block = entry->second;
      if (block->before != nullptr || block->after != nullptr) {
        ++entry;
        continue;
      }
      entry = free_.erase(entry);
      reserved_ -= block->size;
      cudaFree(block->address);
      delete block;
    }
  }

  uint64_t allocated() {
    const std::lock_guard lock(mutex_);
    return allocated_;
  }
  uint64_t reserved() {
    const std::lock_guard lock(mutex_);
    return reserved_;
  }

 private:
  // Small blocks before large ones, then by size.
  using FreeKey = std::pair<bool, size_t>;

  Block* TakeFree(size_t size) {
    const bool large = size > kSmallSize;
    const auto found = free_.lower_bound(FreeKey{large, size});
    if (found == free_.end() || found->first.first != large) return nullptr;
    Block* block = found->second;
    free_.erase(found);
    return block;
  }

  Block* NewSegment(size_t size) {
    const bool small = size <= kSmallSize;
    size_t bytes = kSmallSegment;
    if (!small) {
      bytes = size < kMinLarge
                  ? kLargeSegment
                  : (size + kLargeRound - 1) / kLargeRound * kLargeRound;
    }
    void* address = nullptr;
    if (cudaMalloc(&address, bytes) != 0) return nullptr;
    reserved_ += bytes;
    return new Block{
        static_cast<char*>(address), bytes, small, true, nullptr, nullptr, {}};
  }

  void Split(Block* block, size_t size) {
    const size_t rest = block->size - size;
    if (block->small ? rest < kMinBlock : rest <= kSmallSize) return;
    auto* tail =
        new Block{block->address + size, rest, block->small, true, block,
                  block->after,          {}};
    if (block->after != nullptr) block->after->before = tail;
    block->after = tail;
    block->size = size;
    free_.emplace(FreeKey{!tail->small, tail->size}, tail);
  }

  void MakeFree(Block* block) {
    block->free = true;
    if (block->before != nullptr && block->before->free) {
      block = Merge(block->before, block);
    }
    if (block->after != nullptr && block->after->free) {
      Merge(block, block->after);
    }
    free_.emplace(FreeKey{!block->small, block->size}, block);
  }

  Block* Merge(Block* low, Block* high) {
    Forget(low);
    Forget(high);
    low->size += high->size;
    low->after = high->after;
    if (low->after != nullptr) low->after->before = low;
    delete high;
    return low;
  }

  void Forget(Block* block) {
    const auto [first, last] =
        free_.equal_range(FreeKey{!block->small, block->size});
    for (auto entry = first; entry != last; ++entry) {
      if (entry->second != block) continue;
      free_.erase(entry);
      return;
    }
  }

  void InsertEvents(Block* block) {
    int* left = new int(static_cast<int>(block->streams.size()));
    for (void* stream : block->streams) {
      cudaEvent_t event = nullptr;
      cudaEventCreateWithFlags(&event, 2);
      cudaEventRecord(event, static_cast<cudaStream_t>(stream));
      pending_.push_back({event, block, left});
    }
    block->streams.clear();
  }

  void ProcessEvents() {
    size_t kept = 0;
    for (const Pending& pending : pending_) {
      if (cudaEventQuery(pending.event) != 0) {
        pending_[kept++] = pending;
        continue;
      }
      cudaEventDestroy(pending.event);
      if (--*pending.left > 0) continue;
      delete pending.left;
      MakeFree(pending.block);
    }
    pending_.resize(kept);
  }

  std::mutex mutex_;
  std::multimap<FreeKey, Block*> free_;
  std::unordered_map<char*, Block*> live_;
  std::vector<Pending> pending_;
  size_t allocated_ = 0;
  size_t reserved_ = 0;
};

Allocator& TheAllocator() {
  // Never destroyed: programs free tensors from their own exit handlers.
  static Allocator& allocator = *new Allocator;
  return allocator;
}

}  // namespace

extern "C" {

FAKE_EXPORT void* fake_torch_malloc(size_t bytes) {
  return TheAllocator().Malloc(bytes);
}
FAKE_EXPORT void fake_torch_free(void* block) { TheAllocator().Free(block); }
FAKE_EXPORT void fake_torch_record_stream(void* block, void* stream) {
  TheAllocator().RecordStream(block, stream);
}
FAKE_EXPORT void fake_torch_empty_cache() { TheAllocator().EmptyCache(); }
FAKE_EXPORT uint64_t fake_torch_memory_allocated() {
  return TheAllocator().allocated();
}
FAKE_EXPORT uint64_t fake_torch_memory_reserved() {
  return TheAllocator().reserved();
}

}  // extern "C"
