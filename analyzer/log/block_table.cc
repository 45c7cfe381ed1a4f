// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/block_table.h"

#include "analyzer/log/varint.h"

namespace dstrace::log {
namespace {

// A chunk's dictionary has this many slots; later literals get none.
constexpr size_t kSlots = 4096;

// A short literal counts in units of 512 bytes.
constexpr int kShortLiteralShift = 9;

}  // namespace

BlockTable::BlockTable() { blocks_.reserve(kSlots); }

void BlockTable::Clear() {
  literal_ = {};
  blocks_.clear();
}

const uint8_t* BlockTable::Read(const uint8_t* at, const uint8_t* end,
                                Block* block) {
  uint64_t slot = 0;
  at = ReadVarint(at, end, &slot);
  if (at == nullptr) return nullptr;
  if (slot != 0) {
    if (slot > blocks_.size()) return nullptr;
    *block = blocks_[slot - 1];
    return at;
  }
  at = ReadLiteral(at, end, block);
  if (at == nullptr) return nullptr;
  literal_ = *block;
  if (blocks_.size() < kSlots) blocks_.push_back(*block);
  return at;
}

// A literal that ends before its device is a short one.
const uint8_t* BlockTable::ReadLiteral(const uint8_t* at, const uint8_t* end,
                                       Block* block) const {
  uint64_t zigzag = 0;
  at = ReadVarint(at, end, &zigzag);
  if (at == nullptr) return nullptr;
  at = ReadVarint(at, end, &block->size);
  if (at == nullptr) return nullptr;
  auto delta = static_cast<uint64_t>(UnZigZag(zigzag));
  uint64_t device = literal_.device;
  if (at == end) {
    if (block->size >> (64 - kShortLiteralShift) != 0) return nullptr;
    delta <<= kShortLiteralShift;
    block->size <<= kShortLiteralShift;
  } else {
    at = ReadVarint(at, end, &device);
    if (at == nullptr || device > UINT32_MAX) return nullptr;
  }
  block->address = literal_.address + delta;
  block->device = static_cast<uint32_t>(device);
  return at;
}

}  // namespace dstrace::log
