// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_SYMBOLIZE_DEMANGLE_H_
#define DSTRACE_ANALYZER_SYMBOLIZE_DEMANGLE_H_

#include <string>
#include <string_view>

namespace dstrace::symbolize {

// The C++ name behind a symbol; the symbol itself where it is not mangled.
// Thread-safety: any thread.
std::string Demangle(const std::string& symbol);

// A demangled name without return type, parameters and template arguments:
//   "void at::native::foo<float>(at::Tensor const&)"  ->  "at::native::foo"
// Operators and lambdas keep what names them. Never empty for a non-empty name.
// Thread-safety: any thread.
std::string ShortName(std::string_view demangled);

}  // namespace dstrace::symbolize

#endif  // DSTRACE_ANALYZER_SYMBOLIZE_DEMANGLE_H_
