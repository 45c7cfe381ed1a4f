// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_ATTRIBUTION_GLOB_H_
#define DSTRACE_ANALYZER_ATTRIBUTION_GLOB_H_

#include <string_view>

namespace dstrace::attribution {

// Whether `text` as a whole matches `pattern`: '*' any run of characters
// (slashes too), '?' one character, everything else itself. Case counts.
// Time is O(pattern * text), no recursion.
// Thread-safety: any thread.
bool GlobMatch(std::string_view pattern, std::string_view text);

// Whether a function pattern matches a qualified name or a tail of it that
// begins after a '.' or "::", so that `_allgather_params*` finds
// "Init._convert.<locals>._allgather_params" and `Linear.__init__` finds
// "torch.nn.Linear.__init__".
bool FunctionMatch(std::string_view pattern, std::string_view name);

// Whether a file pattern matches a path: a glob over the whole path if it holds
// '*' or '?', else the path or a tail of it that begins at a slash.
bool FileMatch(std::string_view pattern, std::string_view path);

}  // namespace dstrace::attribution

#endif  // DSTRACE_ANALYZER_ATTRIBUTION_GLOB_H_
