// SPDX-License-Identifier: Apache-2.0
//
// A verdict as text to read at night, and as JSON for programs. The first
// line of the text is the verdict. Thread-safety: pure functions.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_RENDER_H_
#define DSTRACE_ANALYZER_DEEPSPEED_RENDER_H_

#include <string>

#include "analyzer/deepspeed/verdict.h"

namespace dstrace::deepspeed {

struct RenderInputs {
  std::string file;  // the config's name
  CheckOptions options;
  const ConfigReport& config;
  const Verdict& verdict;
  const ExpectedMemory* expected = nullptr;  // nullptr: model not known
  std::string trace = {};  // what was measured; empty: nothing
};

std::string RenderText(const RenderInputs& inputs);

// One object; the keys are stable, sizes are bytes.
std::string RenderJson(const RenderInputs& inputs);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_RENDER_H_
