// SPDX-License-Identifier: Apache-2.0
#include "preload/log/thread_log.h"

#include <atomic>
#include <cstring>

namespace dstrace::log {
namespace {

// Block addresses are multiples of 512 and close together; the multiplier
// (2^64 / golden ratio) spreads them over the high bits. The size is part of
// the key: an allocator cuts the same place differently from step to step, and
// each cut comes back.
uint32_t HashBlock(uint64_t address, uint64_t size, uint32_t bits) noexcept {
  const uint64_t key = (address >> 4) ^ size << 32 ^ size;
  return static_cast<uint32_t>((key * 0x9E3779B97F4A7C15u) >> (64 - bits));
}

}  // namespace

void BlockDictionary::Clear() noexcept {
  last_literal_ = 0;
  last_device_ = 0;
  used_ = 0;
  std::memset(index_, 0, sizeof index_);
}

wire::BlockRef BlockDictionary::Refer(uint64_t address, uint64_t size,
                                      uint32_t device) noexcept {
  uint32_t at = HashBlock(address, size, kIndexBits);
  for (; index_[at] != 0; at = (at + 1) % kIndexSize) {
    const Slot& slot = slots_[index_[at] - 1];
    if (slot.address == address && slot.size == size && slot.device == device) {
      return {.slot_plus_one = index_[at]};
    }
  }
  if (used_ < kSlots) {
    slots_[used_] = {address, size, device};
    index_[at] = static_cast<uint16_t>(++used_);
  }
  return Literal(address, size, device);
}

wire::BlockRef BlockDictionary::Literal(uint64_t address, uint64_t size,
                                        uint32_t device) noexcept {
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

bool ThreadLog::Commit(const wire::Encoder& record) noexcept {
  if (!record.ok()) return false;
  used_ += static_cast<uint32_t>(record.size());
  // release: a reader that sees the count sees the bytes before it (its acquire
  // load is in the analyzer's chunk reader).
  std::atomic_ref<uint32_t>(
      *reinterpret_cast<uint32_t*>(chunk_ + wire::kCommittedOffset))
      .store(used_, std::memory_order_release);
  return true;
}

bool ThreadLog::NextChunk(LogFile& file, size_t bytes, uint64_t now,
                          ChunkUse use) noexcept {
  if (bytes > wire::kPayloadBytes) return false;
  // The old chunk is given up only when there is a new one: on a full disk its
  // last bytes still take small records.
  uint8_t* const next = file.OpenChunk(thread_, now, use);
  if (next == nullptr) return false;
  Close(file);
  chunk_ = next;
  used_ = 0;
  recorded_thread_ = thread_;
  last_time_ = now;
  blocks_.Clear();
  return true;
}

void ThreadLog::Close(LogFile& file) noexcept {
  if (chunk_ == nullptr) return;
  file.CloseChunk(chunk_, last_time_);
  chunk_ = nullptr;
}

}  // namespace dstrace::log
