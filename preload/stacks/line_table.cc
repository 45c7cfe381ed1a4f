// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/line_table.h"

namespace dstrace::stacks {
namespace {

constexpr int8_t kNoLineIncrement = -128;
constexpr unsigned kCodeUnit = 2;  // bytes

int LineInLnotab(const uint8_t* table, size_t size, int line,
                 uint32_t instruction) noexcept {
  uint32_t address = 0;
  for (size_t i = 0; i + 1 < size; i += 2) {
    address += table[i];
    if (address > instruction) break;
    line += static_cast<int8_t>(table[i + 1]);
  }
  return line;
}

int LineInRanges(const uint8_t* table, size_t size, int line,
                 uint32_t instruction) noexcept {
  uint32_t end = 0;
  for (size_t i = 0; i + 1 < size; i += 2) {
    const auto increment = static_cast<int8_t>(table[i + 1]);
    end += table[i];
    if (increment != kNoLineIncrement) line += increment;
    if (instruction < end) return increment == kNoLineIncrement ? 0 : line;
  }
  return 0;
}

class LocationReader {
 public:
  LocationReader(const uint8_t* table, size_t size) noexcept
      : at_(table), end_(table + size) {}

  bool AtEnd() const noexcept { return at_ == end_; }
  uint8_t Head() noexcept { return *at_++; }

  // Six bits a byte, least significant first; bit 6 says that more follow.
  int SignedVarint() noexcept {
    uint32_t value = 0;
    for (unsigned shift = 0; at_ != end_ && shift < 32; shift += 6) {
      const uint8_t byte = *at_++;
      value |= static_cast<uint32_t>(byte & 63) << shift;
      if ((byte & 64) == 0) break;
    }
    const int magnitude = static_cast<int>(value >> 1);
    return (value & 1) != 0 ? -magnitude : magnitude;
  }

  void SkipToNextEntry() noexcept {
    while (at_ != end_ && (*at_ & 0x80) == 0) ++at_;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

int LineInLocations(const uint8_t* table, size_t size, int line,
                    uint32_t instruction) noexcept {
  constexpr unsigned kSecondLineCode = 11, kThirdLineCode = 12;
  constexpr unsigned kNoColumnsCode = 13, kLongCode = 14, kNoLineCode = 15;
  LocationReader reader(table, size);
  uint32_t end = 0;
  while (!reader.AtEnd()) {
    const uint8_t head = reader.Head();
    const unsigned code = (head >> 3) & 15;
    end += ((head & 7u) + 1) * kCodeUnit;
    if (code == kSecondLineCode) line += 1;
    if (code == kThirdLineCode) line += 2;
    if (code == kNoColumnsCode || code == kLongCode)
      line += reader.SignedVarint();
    if (instruction < end) return code == kNoLineCode ? 0 : line;
    reader.SkipToNextEntry();
  }
  return 0;
}

}  // namespace

int LineAt(LineTable format, const uint8_t* table, size_t size, int first_line,
           uint32_t instruction) noexcept {
  switch (format) {
    case LineTable::kLnotab:
      return LineInLnotab(table, size, first_line, instruction);
    case LineTable::kRanges:
      return LineInRanges(table, size, first_line, instruction);
    case LineTable::kLocations:
      return LineInLocations(table, size, first_line, instruction);
  }
  return 0;
}

}  // namespace dstrace::stacks
