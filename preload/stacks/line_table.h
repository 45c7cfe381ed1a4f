// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_LINE_TABLE_H_
#define DSTRACE_PRELOAD_STACKS_LINE_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "preload/stacks/python_layouts.h"

namespace dstrace::stacks {

// The line of the instruction at byte offset `instruction`, from a code
// object's line table. 0 where the table gives the instruction no line or ends
// before it. Never reads outside of [table, table + size).
//
//   kLnotab     (bytes, line) (bytes, line) ...        line is a signed byte;
//               an increment of bytes opens the next range
//   kRanges     the same pairs, but the line increment applies to the range
//               that its bytes span; -128 = the range has no line
//   kLocations  entries of a head byte 1cccclll (code, length in code units
//               minus 1) and a code-dependent number of varints:
//               0-9 same line, 10-12 line +0..+2, 13 and 14 signed varint,
//               15 no line. A byte with the top bit set starts an entry.
int LineAt(LineTable format, const uint8_t* table, size_t size, int first_line,
           uint32_t instruction) noexcept;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_LINE_TABLE_H_
