// SPDX-License-Identifier: Apache-2.0
#include "preload/hooks/first_use.h"

#include <atomic>

namespace dstrace::hooks {
namespace {

// A large model launches some thousand kernels. Pages never touched take no
// memory.
constexpr uint64_t kSlots = uint64_t{1} << 16;
constexpr uint64_t kMaxProbes = 64;

constinit std::atomic<uint64_t> g_used[kSlots] = {};
constinit std::atomic<int> g_contexts{0};

uint64_t PlaceOf(uint64_t key) noexcept {
  return key * 0x9e3779b97f4a7c15U >> 48;
}

}  // namespace

bool IsFirstUse(uint64_t key) noexcept {
  if (key == 0) return false;
  for (uint64_t i = 0, at = PlaceOf(key); i < kMaxProbes; ++i, ++at) {
    std::atomic<uint64_t>& slot = g_used[at % kSlots];
    // relaxed: only who is first matters; nothing is published with it.
    uint64_t known = slot.load(std::memory_order_relaxed);
    if (known == key) return false;
    if (known != 0) continue;
    if (slot.compare_exchange_strong(known, key, std::memory_order_relaxed)) {
      return true;
    }
    if (known == key) return false;
  }
  return false;
}

void ForgetUses() noexcept {
  // relaxed: a use that is forgotten or not only costs a measurement.
  for (auto& slot : g_used) {
    if (slot.load(std::memory_order_relaxed) != 0) {
      slot.store(0, std::memory_order_relaxed);
    }
  }
}

void NoteContext() noexcept {
  // relaxed: a count that only ever grows.
  g_contexts.fetch_add(1, std::memory_order_relaxed);
}

bool HasManyContexts() noexcept {
  return g_contexts.load(std::memory_order_relaxed) > 1;
}

}  // namespace dstrace::hooks
