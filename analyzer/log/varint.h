// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_VARINT_H_
#define DSTRACE_ANALYZER_LOG_VARINT_H_

// Protobuf's integers, read from memory that may hold anything.
//
// Guarantee: never reads at or past `end`. nullptr means malformed or cut off.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dstrace::log {

inline const uint8_t* ReadVarintSlow(const uint8_t* at, const uint8_t* end,
                                     uint64_t* value) {
  uint64_t result = 0;
  for (int shift = 0; shift < 70 && at < end; shift += 7) {
    const uint64_t byte = *at++;
    result |= (byte & 0x7f) << (shift < 64 ? shift : 0);
    if (byte < 0x80) {
      // The tenth byte has room for one bit only.
      if (shift == 63 && byte > 1) return nullptr;
      *value = result;
      return at;
    }
  }
  return nullptr;
}

inline const uint8_t* ReadVarint(const uint8_t* at, const uint8_t* end,
                                 uint64_t* value) {
  // Most numbers of a trace are one or two bytes.
  if (at < end && *at < 0x80) [[likely]] {
    *value = *at;
    return at + 1;
  }
  if (end - at >= 2 && at[1] < 0x80) [[likely]] {
    *value = (at[0] & 0x7fu) | static_cast<uint64_t>(at[1]) << 7;
    return at + 2;
  }
  return ReadVarintSlow(at, end, value);
}

constexpr int64_t UnZigZag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

enum WireType : uint32_t {
  kWireVarint = 0,
  kWireFixed64 = 1,
  kWireLen = 2,
  kWireFixed32 = 5,
};

// One field of a message.
struct Field {
  uint32_t number = 0;
  uint32_t type = 0;
  uint64_t value = 0;  // varint, fixed32, fixed64; length of kWireLen
  const uint8_t* data = nullptr;  // kWireLen: first byte
  // Of the field's value; where the next field starts.
  const uint8_t* end = nullptr;
};

// False when no well-formed field that ends by `end` starts at `at`.
inline bool ReadField(const uint8_t* at, const uint8_t* end, Field* field) {
  uint64_t tag = 0;
  at = ReadVarint(at, end, &tag);
  if (at == nullptr || tag >> 3 == 0 || tag > UINT32_MAX) return false;
  field->number = static_cast<uint32_t>(tag >> 3);
  field->type = static_cast<uint32_t>(tag & 7);
  const auto left = static_cast<uint64_t>(end - at);
  switch (field->type) {
    case kWireVarint:
      field->end = ReadVarint(at, end, &field->value);
      return field->end != nullptr;
    case kWireLen:
      at = ReadVarint(at, end, &field->value);
      if (at == nullptr || field->value > static_cast<uint64_t>(end - at)) {
        return false;
      }
      field->data = at;
      field->end = at + field->value;
      return true;
    case kWireFixed32: {
      uint32_t value = 0;
      if (left < sizeof value) return false;
      std::memcpy(&value, at, sizeof value);
      field->value = value;
      field->end = at + sizeof value;
      return true;
    }
    case kWireFixed64:
      if (left < sizeof field->value) return false;
      std::memcpy(&field->value, at, sizeof field->value);
      field->end = at + sizeof field->value;
      return true;
    default:
      return false;
  }
}

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_VARINT_H_
