// SPDX-License-Identifier: Apache-2.0
#include "preload/log/recycler.h"

#include <algorithm>

#include "preload/runtime/memory.h"
#include "proto/wire/layout.h"

namespace dstrace::log {

bool Recycler::Start(uint64_t limit_chunks) noexcept {
  if (limit_chunks == 0) {
    limit_ = 0;
    return true;
  }
  if (state_ == nullptr) {
    state_ = static_cast<uint32_t*>(
        runtime::MapPages(kMaxPlaces * sizeof(uint32_t)));
    free_ = static_cast<uint32_t*>(
        runtime::MapPages(kMaxPlaces * sizeof(uint32_t)));
    open_ = static_cast<Open*>(runtime::MapPages(kMaxOpen * sizeof(Open)));
  }
  if (state_ == nullptr || free_ == nullptr || open_ == nullptr) return false;
  limit_ = static_cast<uint32_t>(
      std::clamp<uint64_t>(limit_chunks, kMinChunks, kMaxPlaces / 2));
  grows_ = true;
  epoch_ = places_ = pinned_ = open_count_ = free_count_ = 0;
  opened_ = pending_ = 0;
  return true;
}

uint32_t Recycler::TakeFree() noexcept {
  return free_count_ == 0 ? kNone : free_[--free_count_];
}

void Recycler::PutBack(uint32_t place) noexcept {
  free_[free_count_++] = place;
}

void Recycler::OnOpened(const Open& open) noexcept {
  if (!on()) return;
  ++opened_;
  if (open.use == ChunkUse::kPinned) ++pinned_;
  if (open.place != kNone) {
    places_ = std::max(places_, open.place + 1);
    if (open.place < kMaxPlaces) state_[open.place] = kInUse;
  }
  // Beyond the tables a place is never given away again: the file grows.
  if (open_count_ < kMaxOpen) open_[open_count_++] = open;
}

Recycler::Open Recycler::OnClosed(const void* chunk) noexcept {
  for (uint32_t i = 0; i < open_count_; ++i) {
    if (open_[i].chunk != chunk) continue;
    const Open closed = open_[i];
    open_[i] = open_[--open_count_];
    return closed;
  }
  return {.use = ChunkUse::kPinned};
}

void Recycler::OnPlaced(const Open& open) noexcept {
  if (!on() || open.place == kNone) return;
  places_ = std::max(places_, open.place + 1);
  if (open.place >= kMaxPlaces) return;
  state_[open.place] = open.use == ChunkUse::kPinned ? kInUse : epoch_;
}

void Recycler::OnCopied(uint32_t place, ChunkUse use) noexcept {
  if (!on()) return;
  ++opened_;
  if (use == ChunkUse::kPinned) ++pinned_;
  OnPlaced({.place = place, .use = use});
}

uint64_t Recycler::GrowthLeft(uint64_t file_bytes) const noexcept {
  if (!on()) return UINT64_MAX;
  const uint64_t limit = uint64_t{limit_} * wire::kChunkBytes;
  return limit > file_bytes + wire::kChunkBytes ? limit - file_bytes
                                                : wire::kChunkBytes;
}

uint32_t Recycler::Capacity(uint32_t size) const noexcept {
  const uint32_t needed = pinned_ + open_count_ + 2 * size + kMinHistory;
  return std::max(limit_, needed);
}

uint32_t Recycler::Left(uint32_t size) const noexcept {
  const uint32_t capacity = Capacity(size);
  const uint32_t room = grows_ && capacity > places_ ? capacity - places_ : 0;
  return free_count_ + room;
}

bool Recycler::CheckpointDue(uint32_t size) const noexcept {
  const uint32_t fixed = pinned_ + open_count_;
  const uint32_t capacity = Capacity(size);
  const uint32_t usable = capacity > fixed ? capacity - fixed : 0;
  return opened_ >= std::max(usable / 4, size + 4);
}

bool Recycler::IsShort(uint32_t size) const noexcept {
  return Left(size) <= size + 2;
}

void Recycler::CommitCheckpoint(uint64_t time) noexcept {
  checkpoints_[pending_++] = {epoch_, time};
}

void Recycler::ForgetBeforeOldest() noexcept {
  const uint32_t epoch = checkpoints_[0].epoch;
  --pending_;
  for (uint32_t i = 0; i < pending_; ++i) checkpoints_[i] = checkpoints_[i + 1];
  const uint32_t places = std::min(places_, kMaxPlaces);
  for (uint32_t place = 0; place < places; ++place) {
    // kInUse and kFreeState are greater than any epoch.
    if (state_[place] >= epoch) continue;
    state_[place] = kFreeState;
    PutBack(place);
  }
}

}  // namespace dstrace::log
