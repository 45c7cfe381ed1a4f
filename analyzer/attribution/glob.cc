// SPDX-License-Identifier: Apache-2.0
#include "analyzer/attribution/glob.h"

namespace dstrace::attribution {

bool GlobMatch(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;  // last '*' seen, and what it covers
  size_t covered = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      covered = t;
    } else if (p < pattern.size() &&
               (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++covered;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool FunctionMatch(std::string_view pattern, std::string_view name) {
  if (GlobMatch(pattern, name)) return true;
  for (size_t i = 0; i + 1 < name.size(); ++i) {
    const bool dot = name[i] == '.';
    const bool colons = name[i] == ':' && i > 0 && name[i - 1] == ':';
    if ((dot || colons) && GlobMatch(pattern, name.substr(i + 1))) return true;
  }
  return false;
}

bool FileMatch(std::string_view pattern, std::string_view path) {
  if (pattern.find_first_of("*?") != std::string_view::npos)
    return GlobMatch(pattern, path);
  if (!path.ends_with(pattern)) return false;
  const size_t before = path.size() - pattern.size();
  return before == 0 || pattern.starts_with('/') || path[before - 1] == '/';
}

}  // namespace dstrace::attribution
