// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/python_text.h"

#include <gtest/gtest.h>

#include <string>

namespace dstrace::stacks {
namespace {

std::string Encoded(uint32_t code_point) {
  char bytes[4];
  return std::string(bytes, EncodeUtf8(code_point, bytes));
}

TEST(EncodeUtf8, UsesTheShortestFormAtEachBoundary) {
  EXPECT_EQ(Encoded(0x7f), "\x7f");
  EXPECT_EQ(Encoded(0x80), "\xc2\x80");
  EXPECT_EQ(Encoded(0x7ff), "\xdf\xbf");
  EXPECT_EQ(Encoded(0x800), "\xe0\xa0\x80");
  EXPECT_EQ(Encoded(0xffff), "\xef\xbf\xbf");
  EXPECT_EQ(Encoded(0x10000), "\xf0\x90\x80\x80");
  EXPECT_EQ(Encoded(0x10ffff), "\xf4\x8f\xbf\xbf");
}

// A string object of 3.11's layout at hand-made addresses.
class CopyTextTest : public ::testing::Test {
 protected:
  CopyTextTest() {
    python_.layout = kLayouts[3];
    python_.text_type = 0x1234;
  }

  template <typename Character>
  std::string Copy(const std::basic_string<Character>& text, size_t size,
                   bool ascii = false) {
    const PyLayout& layout = python_.layout;
    alignas(8) char object[1024] = {};
    const uintptr_t type = python_.text_type;
    const size_t length = text.size();
    const uint32_t state = (sizeof(Character) | 8u | (ascii ? 16u : 0u))
                           << layout.text_kind_shift;
    memcpy(object + layout.object_type, &type, sizeof(type));
    memcpy(object + layout.text_length, &length, sizeof(length));
    memcpy(object + layout.text_state, &state, sizeof(state));
    memcpy(object + (ascii ? layout.text_ascii : layout.text_compact),
           text.data(), length * sizeof(Character));
    char out[64];
    CopyText(python_, reinterpret_cast<uintptr_t>(object), out, size);
    return out;
  }

  PythonRuntime python_{};
};

TEST_F(CopyTextTest, ReadsEveryWidth) {
  EXPECT_EQ(Copy(std::string("plain"), 64, true), "plain");
  EXPECT_EQ(Copy(std::string("f\xfcnf"), 64), "f\xc3\xbcnf");
  EXPECT_EQ(Copy(std::u16string(u"\u4e94x"), 64), "\xe4\xba\x94x");
  EXPECT_EQ(Copy(std::u32string(U"\U0001f40d"), 64), "\xf0\x9f\x90\x8d");
}

TEST_F(CopyTextTest, CutsBetweenCharacters) {
  EXPECT_EQ(Copy(std::string("plain"), 4, true), "pla");
  EXPECT_EQ(Copy(std::u16string(u"\u4e94\u4e94"), 6), "\xe4\xba\x94");
  EXPECT_EQ(Copy(std::u16string(u"\u4e94"), 1), "");
}

TEST_F(CopyTextTest, ReplacesLoneSurrogates) {
  const char16_t undecodable_byte[] = {0xdc80, u'x', 0};
  EXPECT_EQ(Copy(std::u16string(undecodable_byte), 64), "\xef\xbf\xbdx");
}

TEST_F(CopyTextTest, RefusesObjectsOfAnotherType) {
  python_.text_type = 0;
  EXPECT_EQ(Copy(std::string("x"), 64, true), "x");
  alignas(8) const char not_a_string[128] = {};
  python_.text_type = 0x99;
  char out[8] = "before";
  CopyText(python_, reinterpret_cast<uintptr_t>(not_a_string), out,
           sizeof(out));
  EXPECT_STREQ(out, "");
  CopyText(python_, 0, out, sizeof(out));
  EXPECT_STREQ(out, "");
}

}  // namespace
}  // namespace dstrace::stacks
