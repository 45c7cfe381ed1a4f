// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/line_table.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace dstrace::stacks {
namespace {

int At(LineTable format, const std::vector<uint8_t>& table,
       uint32_t instruction, int first_line = 100) {
  return LineAt(format, table.data(), table.size(), first_line, instruction);
}

constexpr uint8_t Signed(int value) { return static_cast<uint8_t>(value); }

TEST(LineTable, LnotabAddsEveryIncrementUpToTheInstruction) {
  const std::vector<uint8_t> table = {0, 1, 6, 2, 8, Signed(-2)};

  EXPECT_EQ(At(LineTable::kLnotab, table, 0), 101);
  EXPECT_EQ(At(LineTable::kLnotab, table, 5), 101);
  EXPECT_EQ(At(LineTable::kLnotab, table, 6), 103);
  EXPECT_EQ(At(LineTable::kLnotab, table, 13), 103);
  EXPECT_EQ(At(LineTable::kLnotab, table, 14), 101);
  EXPECT_EQ(At(LineTable::kLnotab, table, 5000), 101);
}

TEST(LineTable, LnotabJoinsIncrementsThatDoNotFitOneByte) {
  const std::vector<uint8_t> table = {255, 0, 45, 127, 0, 100};

  EXPECT_EQ(At(LineTable::kLnotab, table, 299), 100);
  EXPECT_EQ(At(LineTable::kLnotab, table, 300), 327);
}

TEST(LineTable, RangesApplyALineToTheBytesThatFollow) {
  const std::vector<uint8_t> table = {4, 1, 2, Signed(-128), 6, 3};

  EXPECT_EQ(At(LineTable::kRanges, table, 0), 101);
  EXPECT_EQ(At(LineTable::kRanges, table, 2), 101);
  EXPECT_EQ(At(LineTable::kRanges, table, 4), 0) << "a range without a line";
  EXPECT_EQ(At(LineTable::kRanges, table, 6), 104);
  EXPECT_EQ(At(LineTable::kRanges, table, 12), 0) << "behind the table";
}

TEST(LineTable, LocationsOfEveryEncoding) {
  const std::vector<uint8_t> table = {
      0x80 | (3 << 3) | 1,  0x12,            // short form, 2 units, same line
      0x80 | (11 << 3) | 0, 0x01,     0x02,  // next line, 1 unit
      0x80 | (12 << 3) | 0, 0x01,     0x02,  // two lines on, 1 unit
      0x80 | (13 << 3) | 0, 0x40 | 9, 0x02,  // signed varint: -(137 >> 1) = -68
      0x80 | (14 << 3) | 0, 40,       0,    1, 2,  // long form: +20
      0x80 | (15 << 3) | 0,                        // no line
      0x80 | (10 << 3) | 7, 0x01,     0x02,        // same line, 8 units
  };

  const std::vector<int> lines = {100, 100, 101, 103, 35, 55, 0,  55,
                                  55,  55,  55,  55,  55, 55, 55, 0};
  for (size_t unit = 0; unit < lines.size(); ++unit) {
    EXPECT_EQ(At(LineTable::kLocations, table, static_cast<uint32_t>(2 * unit)),
              lines[unit])
        << "unit " << unit;
  }
}

TEST(LineTable, EmptyTablesGiveNoLineOrTheFirst) {
  EXPECT_EQ(At(LineTable::kLnotab, {}, 4), 100);
  EXPECT_EQ(At(LineTable::kRanges, {}, 4), 0);
  EXPECT_EQ(At(LineTable::kLocations, {}, 4), 0);
}

// Run under the address sanitizer: the table's allocation ends where it ends.
TEST(LineTable, RandomBytesNeverLeadOutsideOfTheTable) {
  std::mt19937 random(20260901);
  int lines_found = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint8_t> table(random() % 24);
    for (uint8_t& byte : table) byte = static_cast<uint8_t>(random());
    table.shrink_to_fit();
    for (const auto format :
         {LineTable::kLnotab, LineTable::kRanges, LineTable::kLocations}) {
      lines_found += At(format, table, random() % 64) != 0 ? 1 : 0;
    }
  }
  EXPECT_GT(lines_found, 20000);
}

}  // namespace
}  // namespace dstrace::stacks
