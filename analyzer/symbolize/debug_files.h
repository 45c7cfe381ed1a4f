// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_SYMBOLIZE_DEBUG_FILES_H_
#define DSTRACE_ANALYZER_SYMBOLIZE_DEBUG_FILES_H_

#include <vector>

#include "analyzer/model/frame_text.h"
#include "analyzer/model/run.h"

namespace dstrace::symbolize {

// Describe(), and for native frames the source file and line (and a name where
// the trace has none) from the debug information of their module, if it is
// here: in the module's own file, or in /usr/lib/debug/.build-id. Either must
// have the build-id of the trace; a module without one is left alone, since
// another build of it would give wrong lines.
//
// Needs libdw.so.1 when it runs; without it, or in a build without its header,
// this is Describe().
// Thread-safety: any thread.
std::vector<model::FrameText> DescribeWithDebugFiles(
    const model::Stacks& stacks);

}  // namespace dstrace::symbolize

#endif  // DSTRACE_ANALYZER_SYMBOLIZE_DEBUG_FILES_H_
