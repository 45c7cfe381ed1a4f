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

// What distinguishes the string now at an address from another one that lies
// there later: its hash where Python has computed it, which it has not for the
// file names of code; then its length and its first and last 24 bytes, up to 48
// bytes all of it.
class TextWitness {
 public:
  // `text` is a string.
  void Take(const PyLayout& layout, uintptr_t text) noexcept {
    text_ = text;
    hash_ = Load<uint64_t>(HashOf(layout, text));
    length_ = Load<uint64_t>(text + layout.text_length);
    state_ = Load<uint32_t>(text + layout.text_state);
    const uint32_t state = state_ >> layout.text_kind_shift;
    if (hash_ != kNotComputed || (state & kCompact) == 0) {
      first_ = last_ = 0;
      for (int i = 0; i < kWords; ++i) first_words_[i] = last_words_[i] = 0;
      return;
    }
    // 1, 2 or 4 bytes a character. Before a text of less than 24 bytes lies its
    // header, which is longer than that.
    const uint64_t bytes = length_ << ((state & 7) >> 1);
    const uintptr_t begin =
        text +
        ((state & kAscii) != 0 ? layout.text_ascii : layout.text_compact);
    last_ = begin + bytes - sizeof last_words_;
    first_ = bytes > sizeof first_words_ ? begin : last_;
    TakeWords();
  }

  // Whether it is still the same. `text` is a string, here or elsewhere.
  [[nodiscard]] bool Holds(const PyLayout& layout,
                           uintptr_t text) const noexcept {
    if (text != text_ || Load<uint64_t>(HashOf(layout, text)) != hash_ ||
        Load<uint64_t>(text + layout.text_length) != length_) {
      return false;
    }
    if (__builtin_expect(last_ == 0, 0)) return true;
    // The layout of the text follows from its state.
    return Load<uint32_t>(text + layout.text_state) == state_ &&
           AreWords(last_, last_words_) && AreWords(first_, first_words_);
  }

  [[nodiscard]] uint64_t Sum() const noexcept {
    if (hash_ != kNotComputed) return text_ ^ hash_;
    const uint64_t sum = length_ + last_words_[2] * 0x9e3779b97f4a7c15u +
                         last_words_[1] * 0xd6e8feb86659fd93u +
                         last_words_[0] * 0xa0761d6478bd642fu +
                         first_words_[0] * 0xe7037ed1a0b428dbu +
                         first_words_[1] * 0x8ebc6af09c88c6e3u +
                         first_words_[2] * 0x589965cc75374cc3u;
    return text_ ^ sum ^ sum >> 32;
  }

 private:
  static constexpr uint64_t kNotComputed = ~uint64_t{0};
  static constexpr uint32_t kCompact = 1 << 3;
  static constexpr uint32_t kAscii = 1 << 4;
  static constexpr int kWords = 3;

  static uintptr_t HashOf(const PyLayout& layout, uintptr_t text) noexcept {
    return text + layout.text_length + sizeof(uintptr_t);
  }
  static bool AreWords(uintptr_t at, const uint64_t* words) noexcept {
    return Load<uint64_t>(at) == words[0] &&
           Load<uint64_t>(at + 8) == words[1] &&
           Load<uint64_t>(at + 16) == words[2];
  }
  void TakeWords() noexcept {
    for (int i = 0; i < kWords; ++i) {
      const uintptr_t offset = static_cast<uintptr_t>(i) * sizeof(uint64_t);
      first_words_[i] = Load<uint64_t>(first_ + offset);
      last_words_[i] = Load<uint64_t>(last_ + offset);
    }
  }

  uintptr_t text_;
  uint64_t hash_;
  uint64_t length_;
  uint32_t state_;
  uintptr_t first_;  // where the words were read, 0: none were
  uintptr_t last_;
  uint64_t first_words_[kWords];
  uint64_t last_words_[kWords];
};

// Encodes one code point; returns its length, 1 to 4.
size_t EncodeUtf8(uint32_t code_point, char* out) noexcept;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_PYTHON_TEXT_H_
