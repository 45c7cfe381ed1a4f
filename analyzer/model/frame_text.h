// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_FRAME_TEXT_H_
#define DSTRACE_ANALYZER_MODEL_FRAME_TEXT_H_

// A frame in words: names demangled, paths cut to what a reader needs.
//
// Thread-safety: plain data.

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace dstrace::model {

// The part of a path after the last slash.
inline std::string_view BaseName(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

struct FrameText {
  bool python = false;
  std::string function;  // "Init._allgather_params", "at::empty", "" unknown
  std::string file;      // full path of the source, "" unknown
  std::string module;    // native: base name of the library, "" unknown
  uint32_t line = 0;
  uint64_t offset = 0;  // native: from the start of its module, else the pc

  // "train.py:12", "allocator.cpp:88", "libtorch_cuda.so" or "".
  std::string Place() const {
    if (file.empty()) return module;
    const std::string name(BaseName(file));
    return line == 0 ? name : absl::StrCat(name, ":", line);
  }

  // "main (train.py:12)", "cudaMalloc (libcudart.so.13)", "libx.so+0x7f12".
  std::string Label() const {
    const std::string place = Place();
    if (function.empty() && !python) {
      return absl::StrCat(module, module.empty() ? "0x" : "+0x",
                          absl::Hex(offset));
    }
    const std::string name = function.empty() ? "<unnamed>" : function;
    return place.empty() ? name : absl::StrCat(name, " (", place, ")");
  }
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_FRAME_TEXT_H_
