// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_HASH_H_
#define DSTRACE_PRELOAD_CAPTURE_HASH_H_

// 128-bit keys for interning. The key stands for the thing: equal keys are
// taken as equal things. Two different stacks share a key with a chance of
// about 2^-64, so a million of them clash with a chance of about 3e-8.
//
// Thread-safe: pure functions.

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace dstrace::capture {

struct Key {
  uint64_t low;
  uint64_t high;
  friend bool operator==(const Key&, const Key&) = default;
};

namespace internal {

inline constexpr uint64_t kOdd[4] = {0x9E3779B97F4A7C15u, 0xC2B2AE3D27D4EB4Fu,
                                     0xD6E8FEB86659FD93u, 0xA0761D6478BD642Fu};

// The two halves of a 64x64 product folded together: one multiplication mixes
// every input bit into the middle of the result.
inline uint64_t FoldedMultiply(uint64_t a, uint64_t b) noexcept {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace internal

// Two lanes that do not wait for each other: about one cycle a word.
inline Key HashWords(std::span<const uint64_t> words, uint64_t seed) noexcept {
  using internal::FoldedMultiply;
  using internal::kOdd;
  uint64_t a = seed ^ kOdd[0];
  uint64_t b = words.size() ^ kOdd[1];
  size_t i = 0;
  for (; i + 4 <= words.size(); i += 4) {
    a = FoldedMultiply(words[i] ^ kOdd[2], words[i + 1] ^ a);
    b = FoldedMultiply(words[i + 2] ^ kOdd[3], words[i + 3] ^ b);
  }
  for (; i < words.size(); ++i) {
    a = FoldedMultiply(words[i] ^ kOdd[2], a ^ kOdd[1]);
    b = FoldedMultiply(words[i] ^ kOdd[3], b ^ kOdd[0]);
  }
  return {FoldedMultiply(a ^ kOdd[3], b ^ kOdd[2]),
          FoldedMultiply(b ^ kOdd[0], a ^ kOdd[1]) ^ a};
}

inline Key HashText(std::string_view text, uint64_t seed) noexcept {
  uint64_t words[32];
  // The length goes in first: the last word is padded with zeros.
  Key key{seed ^ text.size() * internal::kOdd[1], 0};
  while (!text.empty()) {
    const size_t take = text.size() < sizeof words ? text.size() : sizeof words;
    const size_t count = (take + 7) / 8;
    words[count - 1] = 0;
    std::memcpy(words, text.data(), take);
    const Key part = HashWords({words, count}, key.low);
    key = {part.low, internal::FoldedMultiply(key.high ^ internal::kOdd[2],
                                              part.high ^ internal::kOdd[3])};
    text.remove_prefix(take);
  }
  return key;
}

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_HASH_H_
