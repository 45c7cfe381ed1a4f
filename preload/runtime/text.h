// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_TEXT_H_
#define DSTRACE_PRELOAD_RUNTIME_TEXT_H_

// A string of bounded length on the stack: the traced process is no place for
// std::string.
//
// Guarantee: always NUL-terminated; what does not fit is cut. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace dstrace::runtime {

// `text` without its first `count` characters (at most all of them). Unlike
// substr() it cannot throw, and so needs nothing of the C++ runtime.
inline std::string_view Tail(std::string_view text, size_t count) noexcept {
  text.remove_prefix(count < text.size() ? count : text.size());
  return text;
}

template <size_t N>
class Text {
 public:
  Text() noexcept { data_[0] = '\0'; }

  Text& operator<<(std::string_view text) noexcept {
    const size_t room = N - 1 - size_;
    const size_t take = text.size() < room ? text.size() : room;
    // An empty view may have no address, which memcpy() may not be given.
    if (take != 0) std::memcpy(data_ + size_, text.data(), take);
    size_ += take;
    data_[size_] = '\0';
    return *this;
  }
  Text& operator<<(char c) noexcept { return *this << std::string_view(&c, 1); }
  Text& operator<<(uint64_t value) noexcept {
    char digits[20];
    size_t at = sizeof digits;
    do {
      digits[--at] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    return *this << std::string_view(digits + at, sizeof digits - at);
  }

  [[nodiscard]] std::string_view view() const noexcept {
    return {data_, size_};
  }
  [[nodiscard]] const char* c_str() const noexcept { return data_; }

  // For functions that fill a buffer themselves, such as readlink().
  [[nodiscard]] char* data() noexcept { return data_; }
  void SetSize(size_t size) noexcept {
    size_ = size < N ? size : N - 1;
    data_[size_] = '\0';
  }
  static constexpr size_t kCapacity = N - 1;

 private:
  char data_[N];
  size_t size_ = 0;
};

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_TEXT_H_
