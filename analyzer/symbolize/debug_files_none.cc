// SPDX-License-Identifier: Apache-2.0
#include "analyzer/symbolize/debug_files.h"
#include "analyzer/symbolize/frames.h"

namespace dstrace::symbolize {

std::vector<model::FrameText> DescribeWithDebugFiles(
    const model::Stacks& stacks) {
  return Describe(stacks);
}

}  // namespace dstrace::symbolize
