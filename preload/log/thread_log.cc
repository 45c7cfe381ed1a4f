// SPDX-License-Identifier: Apache-2.0
#include "preload/log/thread_log.h"

#include <cstring>

#include "preload/runtime/guard.h"

namespace dstrace::log {
void BlockDictionary::Clear() noexcept {
  last_literal_ = 0;
  last_device_ = 0;
  used_ = 0;
  if (epoch_++ < kMaxEpoch) return;
  std::memset(index_, 0, sizeof index_);
  epoch_ = 1;  // 0 is that of entries never written
}

DSTRACE_HOT wire::BlockRef BlockDictionary::Add(uint64_t address, uint64_t size,
                                                uint32_t device) noexcept {
  if (used_ < kSlots && Fits(address, size, device)) {
    const uint64_t place = PlaceOf(address, device);
    uint32_t at = HashOf(place, size);
    while (index_[at].rest >> kEpochShift == epoch_) at = (at + 1) % kIndexSize;
    index_[at] = {place, uint64_t{epoch_} << kEpochShift |
                             uint64_t{used_} << kSlotShift | size};
  }
  if (used_ < kSlots) ++used_;  // as the reader counts
  const uint64_t delta = address - last_literal_;
  const bool is_short =
      device == last_device_ && (delta | size) % wire::kShortLiteralUnit == 0;
  last_literal_ = address;
  last_device_ = device;
  return {.address_delta = static_cast<int64_t>(delta),
          .size = size,
          .device = device,
          .is_short = is_short};
}

inline uint8_t* ThreadLog::EncodeTensor(uint8_t* at, uint64_t now,
                                        uint32_t stack, uint64_t address,
                                        int64_t size,
                                        uint32_t device) noexcept {
  const bool is_alloc = size > 0;
  const uint64_t bytes = BytesOf(size);
  const uint64_t time = TimeDelta(now);
  const uint32_t slot = blocks_.Find(address, bytes, device);
  if (__builtin_expect(slot != 0, 1)) {
    return wire::WriteTensor(at, is_alloc, time, stack,
                             {.slot_plus_one = slot});
  }
  return wire::WriteTensor(at, is_alloc, time, stack,
                           blocks_.Add(address, bytes, device));
}

// The store that commits them also makes them void where they were, see
// wire::RecentTensor: a reader finds them once, in one place or the other.
void ThreadLog::TakeRecent() noexcept {
  const wire::RecentTensor* const end = recent_;
  const wire::RecentTensor* slot = first_recent_;
  recent_ = nullptr;
  first_recent_ = nullptr;
  uint8_t* at = chunk_ + wire::kPayloadOffset + used_;
  for (; slot != end; ++slot) {
    const uint64_t word = slot->stack_device_tag;
    at = EncodeTensor(at, slot->time, wire::RecentStack(word), slot->address,
                      slot->size, wire::RecentDevice(word));
  }
  CommitUntil(at);
}

bool ThreadLog::NextChunk(LogFile& file, size_t bytes, uint64_t now,
                          ChunkUse use) noexcept {
  const runtime::KeepErrno keep_errno;
  if (bytes > wire::kPayloadBytes) return false;
  // On a full disk the chunk stays what it is: its last bytes still take small
  // records.
  if (chunk_ == nullptr) {
    chunk_ = file.OpenChunk(thread_, now, use);
    if (chunk_ == nullptr) return false;
  } else if (!file.TurnChunk(chunk_, last_time_, thread_, now, use)) {
    return false;
  }
  used_ = 0;
  recorded_thread_ = thread_;
  last_time_ = now;
  blocks_.Clear();
  return true;
}

void ThreadLog::Close(LogFile& file) noexcept {
  if (chunk_ == nullptr) return;
  TakeBatch();
  file.CloseChunk(chunk_, last_time_);
  chunk_ = nullptr;
}

}  // namespace dstrace::log
