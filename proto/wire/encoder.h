// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PROTO_WIRE_ENCODER_H_
#define DSTRACE_PROTO_WIRE_ENCODER_H_

// Writes protobuf wire format into memory the caller owns. std only: it runs in
// the traced process, where libprotobuf must not be.
//
// Guarantee: never writes past the end; what does not fit clears ok() and the
// record must be dropped. Thread-safety: none, one encoder per record.
// Source of the format: https://protobuf.dev/programming-guides/encoding/

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace dstrace::wire {

enum class WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kLen = 2,
  kFixed32 = 5
};

constexpr uint32_t MakeTag(uint32_t field, WireType type) {
  return field << 3 | static_cast<uint32_t>(type);
}

// -1 -> 1, 1 -> 2, ...: small magnitudes stay short.
constexpr uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^
         static_cast<uint64_t>(value >> 63);
}

inline constexpr size_t kMaxVarintBytes = 10;

// Writes `value` in exactly `width` bytes; continuation bits pad it. Readers
// accept padding; it lets a length be filled in after the body.
constexpr void PutPaddedVarint(uint8_t* out, uint64_t value, int width) {
  for (int i = 0; i < width - 1; ++i) {
    out[i] = static_cast<uint8_t>(value | 0x80);
    value >>= 7;
  }
  out[width - 1] = static_cast<uint8_t>(value & 0x7f);
}

// Writes up to kMaxVarintBytes bytes; returns one past the last.
constexpr uint8_t* WriteVarint(uint8_t* at, uint64_t value) {
  while (value >= 0x80) {
    *at++ = static_cast<uint8_t>(value | 0x80);
    value >>= 7;
  }
  *at++ = static_cast<uint8_t>(value);
  return at;
}

class Encoder {
 public:
  Encoder(uint8_t* begin, uint8_t* end) noexcept
      : begin_(begin), at_(begin), end_(end) {}

  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] size_t size() const noexcept {
    return static_cast<size_t>(at_ - begin_);
  }
  [[nodiscard]] uint8_t* position() const noexcept { return at_; }

  void RawVarint(uint64_t value) noexcept {
    if (!Fits(kMaxVarintBytes)) return;
    while (value >= 0x80) {
      *at_++ = static_cast<uint8_t>(value | 0x80);
      value >>= 7;
    }
    *at_++ = static_cast<uint8_t>(value);
  }

  void Tag(uint32_t field, WireType type) noexcept {
    RawVarint(MakeTag(field, type));
  }

  // For the records of the hot path: `put(uint8_t* at)` writes at most `most`
  // bytes without further checks and returns where it stopped. The position
  // stays in a register; a member would be stored and loaded at every byte,
  // since bytes may alias it.
  template <typename Put>
  void Direct(size_t most, Put put) noexcept {
    if (__builtin_expect(Fits(most), 1)) at_ = put(at_);
  }

  // Fields follow proto3: a zero is not written.
  void Uint(uint32_t field, uint64_t value) noexcept {
    if (value == 0) return;
    Tag(field, WireType::kVarint);
    RawVarint(value);
  }
  void Sint(uint32_t field, int64_t value) noexcept {
    Uint(field, ZigZag(value));
  }
  void Bool(uint32_t field, bool value) noexcept { Uint(field, value ? 1 : 0); }

  void Bytes(uint32_t field, std::string_view value) noexcept {
    if (value.empty()) return;
    Tag(field, WireType::kLen);
    RawVarint(value.size());
    if (!Fits(value.size())) return;
    std::memcpy(at_, value.data(), value.size());
    at_ += value.size();
  }

  void Raw(const void* data, size_t size) noexcept {
    if (!Fits(size)) return;
    std::memcpy(at_, data, size);
    at_ += size;
  }

  // Opens a nested message whose length is written by End(); returns a cursor
  // for it. Messages opened so hold at most 16 383 bytes.
  [[nodiscard]] size_t Begin(uint32_t field) noexcept {
    Tag(field, WireType::kLen);
    if (Fits(kLengthBytes)) at_ += kLengthBytes;
    return size();
  }
  void End(size_t body) noexcept {
    if (!ok_) return;
    const size_t length = size() - body;
    if (length > kMaxMessageBytes) {
      ok_ = false;
      return;
    }
    PutPaddedVarint(begin_ + body - kLengthBytes, length, kLengthBytes);
  }

  static constexpr int kLengthBytes = 2;
  static constexpr size_t kMaxMessageBytes = (1u << 14) - 1;

 private:
  bool Fits(size_t bytes) noexcept {
    if (static_cast<size_t>(end_ - at_) < bytes) ok_ = false;
    return ok_;
  }

  uint8_t* const begin_;
  uint8_t* at_;
  uint8_t* const end_;
  bool ok_ = true;
};

}  // namespace dstrace::wire

#endif  // DSTRACE_PROTO_WIRE_ENCODER_H_
