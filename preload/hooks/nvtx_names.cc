// SPDX-License-Identifier: Apache-2.0
#include "preload/hooks/nvtx_names.h"

#include <atomic>
#include <cstring>

#include "preload/capture/recorder.h"
#include "preload/runtime/memory.h"

namespace dstrace::hooks::nvtx {
namespace {

constexpr size_t kMaxString = 255;
constexpr size_t kArenaBytes = size_t{256} << 10;

std::atomic<char*> g_arena{nullptr};
std::atomic<size_t> g_arena_used{0};
std::atomic<bool> g_arena_full{false};

char* Arena() noexcept {
  // acquire: pairs with the release below, so that the pages are seen mapped.
  char* arena = g_arena.load(std::memory_order_acquire);
  if (arena != nullptr) return arena;
  auto* fresh = static_cast<char*>(runtime::MapPages(kArenaBytes));
  if (fresh == nullptr) return nullptr;
  if (g_arena.compare_exchange_strong(arena, fresh, std::memory_order_release,
                                      std::memory_order_acquire)) {
    return fresh;
  }
  runtime::UnmapPages(fresh, kArenaBytes);
  return arena;
}

void LoseStrings() noexcept {
  // relaxed: only who is first matters.
  if (g_arena_full.exchange(true, std::memory_order_relaxed)) return;
  capture::CountLoss(capture::LossCause::kNoMemory,
                     "names registered with NVTX");
}

// Domains are few and looked up by name when a library asks again.
struct Domain {
  std::atomic<const char*> name;
};
constexpr size_t kDomains = 64;
Domain g_domains[kDomains];
constexpr char kUnnamed[] = "";

// A range's slot is its id's remainder; a slot in use keeps its range.
struct Slot {
  static constexpr uint64_t kFree = 0;
  static constexpr uint64_t kBusy = UINT64_MAX;
  static constexpr size_t kMaxName = 63;

  std::atomic<uint64_t> id{kFree};
  StartedRange range;
  char name[kMaxName];
};
constexpr size_t kSlots = 128;
Slot g_slots[kSlots];
std::atomic<uint64_t> g_next_id{1};

}  // namespace

const char* AddString(const char* text) noexcept {
  if (text == nullptr) return nullptr;
  char* const arena = Arena();
  const size_t size = strnlen(text, kMaxString);
  // relaxed: each caller gets room of its own; the handle's way to another
  // thread is the program's.
  const size_t at = arena == nullptr ? kArenaBytes
                                     : g_arena_used.fetch_add(
                                           size + 1, std::memory_order_relaxed);
  if (at + size + 1 > kArenaBytes) {
    if (arena != nullptr) {
      g_arena_used.fetch_sub(size + 1, std::memory_order_relaxed);
    }
    LoseStrings();
    return nullptr;
  }
  std::memcpy(arena + at, text, size);  // the page is zero behind it
  return arena + at;
}

const char* AddDomain(const char* name) noexcept {
  if (name == nullptr) return kUnnamed;
  const char* mine = nullptr;
  for (Domain& domain : g_domains) {
    // acquire: pairs with the release below, so that the text is seen.
    const char* known = domain.name.load(std::memory_order_acquire);
    if (known == nullptr) {
      if (mine == nullptr) mine = AddString(name);
      if (mine == nullptr) return kUnnamed;
      if (domain.name.compare_exchange_strong(known, mine,
                                              std::memory_order_release,
                                              std::memory_order_acquire)) {
        return mine;
      }
    }
    if (std::strncmp(known, name, kMaxString) == 0) return known;
  }
  return kUnnamed;
}

uint64_t AddRange(StartedRange range) noexcept {
  // relaxed: only unique.
  const uint64_t id = g_next_id.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = g_slots[id % kSlots];
  uint64_t expected = Slot::kFree;
  // acquire: pairs with the release in ForgetRange(): its reader is done.
  if (!slot.id.compare_exchange_strong(expected, Slot::kBusy,
                                       std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
    return id;
  }
  const std::string_view name = range.name.substr(0, Slot::kMaxName);
  std::memcpy(slot.name, name.data(), name.size());
  slot.range = {{slot.name, name.size()}, range.domain};
  // release: pairs with the acquire in FindRange().
  slot.id.store(id, std::memory_order_release);
  return id;
}

namespace internal {

const StartedRange* FindRange(uint64_t id) noexcept {
  Slot& slot = g_slots[id % kSlots];
  if (id == Slot::kFree || id == Slot::kBusy) return nullptr;
  // acquire: pairs with the release in AddRange().
  return slot.id.load(std::memory_order_acquire) == id ? &slot.range : nullptr;
}

void ForgetRange(uint64_t id) noexcept {
  Slot& slot = g_slots[id % kSlots];
  uint64_t expected = id;
  // release: pairs with the acquire in AddRange(). A range that the program
  // ends twice is forgotten once.
  slot.id.compare_exchange_strong(expected, Slot::kFree,
                                  std::memory_order_release,
                                  std::memory_order_relaxed);
}

}  // namespace internal
}  // namespace dstrace::hooks::nvtx
