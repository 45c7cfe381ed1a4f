// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/format.h"

#include <gtest/gtest.h>

namespace dstrace::report {
namespace {

TEST(Bytes, HasOneDecimalBelowGibAndTwoAbove) {
  EXPECT_EQ(Bytes(0), "0 B");
  EXPECT_EQ(Bytes(1023), "1023 B");
  EXPECT_EQ(Bytes(20480), "20.0 KiB");
  EXPECT_EQ(Bytes(33554432), "32.0 MiB");
  EXPECT_EQ(Bytes(2055208960), "1.91 GiB");
  EXPECT_EQ(Bytes(3ull << 40), "3.00 TiB");
}

TEST(Mebibytes, GroupsDigitsAndKeepsTheSign) {
  EXPECT_EQ(Mebibytes(0), "0.0");
  EXPECT_EQ(Mebibytes(34011ll << 20), "34,011.0");
  EXPECT_EQ(Mebibytes(-(1234ll << 20)), "-1,234.0");
  EXPECT_EQ(Mebibytes(-1), "0.0");
}

TEST(Duration, ChoosesItsUnit) {
  EXPECT_EQ(Duration(0), "0.0 ms");
  EXPECT_EQ(Duration(42'800'000), "42.8 ms");
  EXPECT_EQ(Duration(12'310'000'000), "12.31 s");
  EXPECT_EQ(Duration(185'000'000'000), "3 min 05 s");
  EXPECT_EQ(Duration(7500'000'000'000), "2 h 05 min");
}

TEST(Share, SaysNothingOfNothing) {
  EXPECT_EQ(Share(1, 0), "-");
  EXPECT_EQ(Share(1, 3), "33.3 %");
}

TEST(Printable, TakesTheSteeringOutOfNames) {
  EXPECT_EQ(Printable("a\x1b[31mb\n\x7f"), "a?[31mb??");
  EXPECT_EQ(Printable("\xc2\x9b"), "?");  // the C1 form of ESC [
  EXPECT_EQ(Printable("caf\xc3\xa9"), "caf\xc3\xa9");
}

TEST(Printable, ReplacesBrokenUtf8) {
  EXPECT_EQ(Printable("\xff\xc0\xaf"), "???");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "???");  // a surrogate
  EXPECT_EQ(Printable("a\xe2\x82"), "a??");     // cut off
  EXPECT_EQ(Printable("\xef\xbf\xbe"), "???");
}

TEST(Fit, CutsInTheMiddleAndKeepsTheEnd) {
  EXPECT_EQ(Fit("short", 10), "short");
  EXPECT_EQ(Columns(Fit("/home/ada/project/train.py:12", 12)), 12u);
  EXPECT_TRUE(Fit("/home/ada/project/train.py:12", 12).ends_with("py:12"));
}

TEST(FitStart, KeepsTheStart) {
  EXPECT_EQ(FitStart("_allgather_params", 6), "_allg…");
}

TEST(Wrap, BreaksBetweenWordsAndIndents) {
  EXPECT_EQ(Wrap("aa bb cc", 7, "  "), "aa bb\n  cc");
  EXPECT_EQ(Wrap("", 7, "  "), "");
}

TEST(Wrap, CutsAWordThatIsWiderThanTheLine) {
  EXPECT_EQ(Columns(Wrap(std::string(50, 'x'), 20, "  ")), 18u);
}

}  // namespace
}  // namespace dstrace::report
