// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/python_text.h"

namespace dstrace::stacks {
namespace {

constexpr uint32_t kReplacement = 0xfffd;

uint32_t CharacterAt(uintptr_t data, uint32_t kind, size_t index) noexcept {
  if (kind == 1) return Load<uint8_t>(data + index);
  if (kind == 2) return Load<uint16_t>(data + 2 * index);
  return Load<uint32_t>(data + 4 * index);
}

bool IsEncodable(uint32_t code_point) noexcept {
  return code_point < 0xd800 || (code_point > 0xdfff && code_point < 0x110000);
}

}  // namespace

size_t EncodeUtf8(uint32_t code_point, char* out) noexcept {
  const auto tail = [code_point](unsigned shift) {
    return static_cast<char>(0x80 | ((code_point >> shift) & 0x3f));
  };
  if (code_point < 0x80) {
    out[0] = static_cast<char>(code_point);
    return 1;
  }
  if (code_point < 0x800) {
    out[0] = static_cast<char>(0xc0 | (code_point >> 6));
    out[1] = tail(0);
    return 2;
  }
  if (code_point < 0x10000) {
    out[0] = static_cast<char>(0xe0 | (code_point >> 12));
    out[1] = tail(6);
    out[2] = tail(0);
    return 3;
  }
  out[0] = static_cast<char>(0xf0 | (code_point >> 18));
  out[1] = tail(12);
  out[2] = tail(6);
  out[3] = tail(0);
  return 4;
}

void CopyText(const PythonRuntime& python, uintptr_t text, char* out,
              size_t size) noexcept {
  const PyLayout& layout = python.layout;
  out[0] = '\0';
  if (text == 0 ||
      Load<uintptr_t>(text + layout.object_type) != python.text_type)
    return;
  const uint32_t state =
      Load<uint32_t>(text + layout.text_state) >> layout.text_kind_shift;
  const uint32_t kind = state & 7;
  const bool compact = ((state >> 3) & 1) != 0;
  const bool ascii = ((state >> 4) & 1) != 0;
  if (!compact || (kind != 1 && kind != 2 && kind != 4)) return;
  const uintptr_t data =
      text + (ascii ? layout.text_ascii : layout.text_compact);
  const auto length = Load<size_t>(text + layout.text_length);
  size_t used = 0;
  for (size_t i = 0; i < length; ++i) {
    const uint32_t character = CharacterAt(data, kind, i);
    char encoded[4];
    const size_t bytes =
        EncodeUtf8(IsEncodable(character) ? character : kReplacement, encoded);
    if (used + bytes >= size) break;
    memcpy(out + used, encoded, bytes);
    used += bytes;
  }
  out[used] = '\0';
}

}  // namespace dstrace::stacks
