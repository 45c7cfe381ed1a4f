// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_PYTHON_TEXT_H_
#define DSTRACE_PRELOAD_STACKS_PYTHON_TEXT_H_

#include <cstddef>
#include <cstdint>

#include "preload/stacks/python_runtime.h"

namespace dstrace::stacks {

// Writes a Python string as UTF-8 with a final NUL, cut at a character so that
// it fits `size` bytes. A lone surrogate (an undecodable byte of a file name)
// becomes U+FFFD. Empty where the object is not a compact string.
void CopyText(const PythonRuntime& python, uintptr_t text, char* out,
              size_t size) noexcept;

// What distinguishes the string now at this address from another one that lies
// there later: its hash where Python has computed it, which it has not for the
// file names of code; then its length and its first and last 24 bytes, up to 48
// bytes all of it. `text` is a string.
inline uint64_t TextIdentity(const PyLayout& layout, uintptr_t text) noexcept {
  constexpr uint64_t kNotComputed = ~uint64_t{0};
  const auto hash =
      Load<uint64_t>(text + layout.text_length + sizeof(uintptr_t));
  if (hash != kNotComputed) return hash;
  const auto length = Load<uint64_t>(text + layout.text_length);
  const uint32_t state =
      Load<uint32_t>(text + layout.text_state) >> layout.text_kind_shift;
  constexpr uint32_t kCompact = 1 << 3;
  constexpr uint32_t kAscii = 1 << 4;
  if ((state & kCompact) == 0) return length;
  // 1, 2 or 4 bytes a character.
  const uint64_t bytes = length << ((state & 7) >> 1);
  const uintptr_t begin =
      text + ((state & kAscii) != 0 ? layout.text_ascii : layout.text_compact);
  // Before a shorter text lies its header, which is longer than that.
  const uintptr_t end = begin + bytes;
  uint64_t sum = length + Load<uint64_t>(end - 8) * 0x9e3779b97f4a7c15u +
                 Load<uint64_t>(end - 16) * 0xd6e8feb86659fd93u +
                 Load<uint64_t>(end - 24) * 0xa0761d6478bd642fu;
  if (bytes > 24) {
    sum += Load<uint64_t>(begin) * 0xe7037ed1a0b428dbu +
           Load<uint64_t>(begin + 8) * 0x8ebc6af09c88c6e3u +
           Load<uint64_t>(begin + 16) * 0x589965cc75374cc3u;
  }
  return sum ^ sum >> 32;
}

// The same for frames one after the other, which often share a file. While they
// stand still; one memo per walk.
struct TextMemo {
  uintptr_t text = 0;
  uint64_t identity = 0;
};
inline uint64_t TextIdentity(const PyLayout& layout, uintptr_t text,
                             TextMemo& memo) noexcept {
  if (memo.text != text) memo = {text, TextIdentity(layout, text)};
  return memo.identity;
}

// Encodes one code point; returns its length, 1 to 4.
size_t EncodeUtf8(uint32_t code_point, char* out) noexcept;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_PYTHON_TEXT_H_
