// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PROTO_WIRE_SLOTS_H_
#define DSTRACE_PROTO_WIRE_SLOTS_H_

// Records of fixed length that are written once, at the start of a file, and
// whose numbers are then stored to in place: aligned words of a shared mapping,
// right whenever the program is killed. As in records.h.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "proto/wire/encoder.h"
#include "proto/wire/layout.h"

namespace dstrace::wire {

// Exactly `bytes` bytes (3 to 130) that mean nothing.
inline void PutPadding(Encoder& out, size_t bytes) noexcept {
  out.Tag(static_cast<uint32_t>(RecordField::kPadding), WireType::kLen);
  out.RawVarint(bytes - 3);
  for (size_t i = 3; i < bytes; ++i) {
    const uint8_t zero = 0;
    out.Raw(&zero, 1);
  }
}

// One loss slot is Loss{cause, count} whose count is an aligned word that is
// added to in place:
//   5A 8C 80 00 | 08 <cause, 2 bytes> | 11 <count, 8 bytes>
inline constexpr size_t kLossSlotBytes = 16;
inline constexpr size_t kLossSlotCount = 8;  // offset of the count

// `out` must stand at an address that is a multiple of eight.
inline void PutLossSlot(Encoder& out, uint32_t cause) noexcept {
  uint8_t slot[kLossSlotBytes] = {};
  slot[0] = MakeTag(static_cast<uint32_t>(RecordField::kLoss), WireType::kLen);
  PutPaddedVarint(slot + 1, kLossSlotBytes - 4, 3);
  slot[4] = MakeTag(1, WireType::kVarint);
  PutPaddedVarint(slot + 5, cause, 2);
  slot[7] = MakeTag(2, WireType::kFixed64);
  out.Raw(slot, sizeof slot);
}

// History whose `start` is an aligned word that is stored to in place:
//   D2 01 | length, 4 bytes | 11 <limit, 8 bytes> | 09 <start, 8 bytes>
inline constexpr size_t kHistorySlotBytes = 24;
inline constexpr size_t kHistorySlotStart = 16;  // offset of `start`

// `out` must stand at an address that is a multiple of eight.
inline void PutHistorySlot(Encoder& out, uint64_t limit) noexcept {
  uint8_t slot[kHistorySlotBytes] = {};
  constexpr uint32_t kTag =
      MakeTag(static_cast<uint32_t>(RecordField::kHistory), WireType::kLen);
  PutPaddedVarint(slot, kTag, 2);
  PutPaddedVarint(slot + 2, kHistorySlotBytes - 6, 4);
  slot[6] = MakeTag(2, WireType::kFixed64);
  std::memcpy(slot + 7, &limit, sizeof limit);
  slot[15] = MakeTag(1, WireType::kFixed64);
  out.Raw(slot, sizeof slot);
}

}  // namespace dstrace::wire

#endif  // DSTRACE_PROTO_WIRE_SLOTS_H_
