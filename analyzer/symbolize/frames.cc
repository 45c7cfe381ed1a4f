// SPDX-License-Identifier: Apache-2.0
#include "analyzer/symbolize/frames.h"

#include <utility>

#include "analyzer/symbolize/demangle.h"

namespace dstrace::symbolize {

std::vector<model::FrameText> Describe(const model::Stacks& stacks) {
  std::vector<model::FrameText> out;
  out.reserve(stacks.frames.size());
  for (const model::Frame& frame : stacks.frames) {
    model::FrameText text;
    text.python = frame.kind == model::Frame::Kind::kPython;
    text.function = text.python ? frame.name : ShortName(Demangle(frame.name));
    text.file = frame.file;
    text.line = frame.line;
    text.offset = frame.pc;
    if (!text.python && frame.module >= 0 &&
        static_cast<size_t>(frame.module) < stacks.modules.size()) {
      const model::Module& module = stacks.modules[frame.module];
      text.module = std::string(model::BaseName(module.path));
      if (frame.pc >= module.base) text.offset = frame.pc - module.base;
    }
    out.push_back(std::move(text));
  }
  return out;
}

}  // namespace dstrace::symbolize
