// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_SYMBOLIZE_FRAMES_H_
#define DSTRACE_ANALYZER_SYMBOLIZE_FRAMES_H_

#include <vector>

#include "analyzer/model/frame_text.h"
#include "analyzer/model/run.h"

namespace dstrace::symbolize {

// Words for all frames, demangled and shortened; result[i] is of
// Stacks::frames[i]. Does not open a file.
// Thread-safety: any thread.
std::vector<model::FrameText> Describe(const model::Stacks& stacks);

}  // namespace dstrace::symbolize

#endif  // DSTRACE_ANALYZER_SYMBOLIZE_FRAMES_H_
