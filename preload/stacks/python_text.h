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

// Encodes one code point; returns its length, 1 to 4.
size_t EncodeUtf8(uint32_t code_point, char* out) noexcept;

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_PYTHON_TEXT_H_
