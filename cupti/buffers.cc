// SPDX-License-Identifier: Apache-2.0
#include "cupti/buffers.h"

#include "preload/runtime/memory.h"

namespace dstrace::cupti {

uint8_t* Buffers::Take() noexcept {
  for (Entry& entry : entries_) {
    State state = State::kIdle;
    // acquire: pairs with the release in Return(): its reader is done.
    if (entry.state.compare_exchange_strong(state, State::kTaken,
                                            std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
      return entry.pages.load(std::memory_order_relaxed);
    }
    if (state != State::kUnmapped) continue;
    if (!entry.state.compare_exchange_strong(state, State::kTaken,
                                             std::memory_order_relaxed)) {
      continue;
    }
    auto* pages = static_cast<uint8_t*>(runtime::MapPages(kBytes));
    if (pages == nullptr) {
      entry.state.store(State::kUnmapped, std::memory_order_relaxed);
      return nullptr;
    }
    // release: pairs with the acquire in Owns().
    entry.pages.store(pages, std::memory_order_release);
    return pages;
  }
  return nullptr;
}

void Buffers::Return(const uint8_t* buffer) noexcept {
  for (Entry& entry : entries_) {
    if (entry.pages.load(std::memory_order_relaxed) != buffer) continue;
    // release: pairs with the acquire in Take().
    entry.state.store(State::kIdle, std::memory_order_release);
    return;
  }
}

bool Buffers::Owns(const uint8_t* buffer) const noexcept {
  if (buffer == nullptr) return false;
  for (const Entry& entry : entries_) {
    // acquire: pairs with the release in Take().
    if (entry.pages.load(std::memory_order_acquire) == buffer) return true;
  }
  return false;
}

}  // namespace dstrace::cupti
