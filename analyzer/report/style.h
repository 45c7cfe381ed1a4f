// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_STYLE_H_
#define DSTRACE_ANALYZER_REPORT_STYLE_H_

#include <string>
#include <string_view>

namespace dstrace::report {

// Terminal colours, or none. Escape sequences take no columns: pad first.
struct Style {
  bool colour = false;

  std::string Bold(std::string_view text) const {
    return Wrapped("\033[1m", text);
  }
  std::string Dim(std::string_view text) const {
    return Wrapped("\033[2m", text);
  }
  std::string Red(std::string_view text) const {
    return Wrapped("\033[31m", text);
  }
  std::string Live(std::string_view text) const {
    return Wrapped("\033[32m", text);
  }
  std::string Cached(std::string_view text) const {
    return Wrapped("\033[33m", text);
  }
  std::string Rest(std::string_view text) const {
    return Wrapped("\033[34m", text);
  }

 private:
  std::string Wrapped(std::string_view code, std::string_view text) const {
    return colour ? std::string(code).append(text).append("\033[0m")
                  : std::string(text);
  }
};

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_STYLE_H_
