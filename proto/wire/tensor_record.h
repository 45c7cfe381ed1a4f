// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PROTO_WIRE_TENSOR_RECORD_H_
#define DSTRACE_PROTO_WIRE_TENSOR_RECORD_H_

// The records of tensors, which are nearly all of a trace, and what they are
// made of: tuples, and blocks named in full or by their slot.
//
// As in records.h, whose other kinds are built from the same tuples.

#include <cstddef>
#include <cstdint>

#include "proto/wire/encoder.h"
#include "proto/wire/layout.h"

namespace dstrace::wire {

// A block named in full (a literal), or by its slot in the chunk's dictionary.
struct BlockRef {
  uint32_t slot_plus_one = 0;  // 0: literal
  int64_t address_delta = 0;   // to the literal before, in the same chunk
  uint64_t size = 0;
  uint32_t device = 0;  // type << 8 | index
  // The literal's device is that of the one before, and `address_delta` and
  // `size` are multiples of kShortLiteralUnit: neither device nor low bits are
  // written.
  bool is_short = false;
};

// Bytes. torch's CUDA allocator rounds every block to it (kMinBlockSize in
// c10/cuda/CUDACachingAllocator.h).
inline constexpr int kShortLiteralShift = 9;
inline constexpr uint64_t kShortLiteralUnit = uint64_t{1} << kShortLiteralShift;

// Upper bound of a tuple record: tag, length, seven varints.
inline constexpr size_t kMaxTupleBytes = 2 + 7 * kMaxVarintBytes;
// Of a tensor's: tag, length, time, stack, and a block named in full.
inline constexpr size_t kMaxTensorBytes =
    2 + kMaxVarintBytes + 5 + (1 + 2 * kMaxVarintBytes + 5);

// Small records are tuples: a tag, a length of one byte, then
// varints. PutTuple needs room for the longest tuple, however short this one
// is. It returns one past the last byte.
inline uint8_t* PutTuple(uint8_t* at, RecordField field, const uint64_t* values,
                         const uint64_t* end) noexcept {
  at = WriteVarint(at, MakeTag(static_cast<uint32_t>(field), WireType::kLen));
  uint8_t* const body = ++at;
  for (; values != end; ++values) at = WriteVarint(at, *values);
  body[-1] = static_cast<uint8_t>(at - body);
  return at;
}

// The varints that name a block.
inline uint8_t* WriteBlock(uint8_t* at, const BlockRef& block) noexcept {
  at = WriteVarint(at, block.slot_plus_one);
  if (block.slot_plus_one != 0) return at;
  if (block.is_short) {
    at = WriteVarint(at, ZigZag(block.address_delta >> kShortLiteralShift));
    return WriteVarint(at, block.size >> kShortLiteralShift);
  }
  at = WriteVarint(at, ZigZag(block.address_delta));
  at = WriteVarint(at, block.size);
  return WriteVarint(at, block.device);
}

// A tensor's record, of at most kMaxTensorBytes; `stack` is not written for a
// free.
inline uint8_t* WriteTensor(uint8_t* at, bool is_alloc, uint64_t time,
                            uint32_t stack, const BlockRef& block) noexcept {
  const auto field = static_cast<uint32_t>(is_alloc ? RecordField::kTensorAlloc
                                                    : RecordField::kTensorFree);
  *at = static_cast<uint8_t>(MakeTag(field, WireType::kLen));
  uint8_t* const body = at + 2;
  at = WriteVarint(body, time);
  if (is_alloc) at = WriteVarint(at, stack);
  at = WriteBlock(at, block);
  body[-1] = static_cast<uint8_t>(at - body);
  return at;
}

namespace internal {

template <size_t kCount>
void PutTuple(Encoder& out, RecordField field,
              const uint64_t (&values)[kCount]) noexcept {
  out.Direct(kMaxTupleBytes, [&values, field](uint8_t* at) {
    return wire::PutTuple(at, field, values, values + kCount);
  });
}

}  // namespace internal

}  // namespace dstrace::wire

#endif  // DSTRACE_PROTO_WIRE_TENSOR_RECORD_H_
