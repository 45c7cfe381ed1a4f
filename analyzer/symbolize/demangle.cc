// SPDX-License-Identifier: Apache-2.0
#include "analyzer/symbolize/demangle.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace dstrace::symbolize {
namespace {

// Drops every balanced <...> that is not part of "operator<", "operator->" or
// the like.
std::string WithoutTemplateArguments(std::string_view name) {
  std::string out;
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (depth == 0 && name.substr(i).starts_with("operator")) {
      size_t end = i + 8;
      while (end < name.size() &&
             std::string_view("<>=-+*/!&|^%~").find(name[end]) !=
                 std::string_view::npos) {
        ++end;
      }
      out.append(name.substr(i, end - i));
      i = end - 1;
    } else if (c == '<') {
      ++depth;
    } else if (c == '>' && depth > 0) {
      --depth;
    } else if (depth == 0) {
      out.push_back(c);
    }
  }
  return depth == 0 ? out : std::string(name);
}

// Position of the parenthesis that opens the parameters, npos if none. Skips
// "(anonymous namespace)", "{lambda(int)#1}" and "operator()".
size_t ParametersBegin(std::string_view name) {
  int braces = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '{') ++braces;
    if (name[i] == '}') --braces;
    if (name[i] != '(' || braces > 0) continue;
    if (name.substr(i).starts_with("(anonymous namespace)")) continue;
    if (name.substr(0, i).ends_with("operator") &&
        name.substr(i).starts_with("()")) {
      ++i;
      continue;
    }
    return i;
  }
  return std::string_view::npos;
}

// The name after the return type: after the last space outside parentheses
// and braces, unless the space belongs to "operator new" and its like.
std::string_view WithoutReturnType(std::string_view name) {
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '(' || name[i] == '{') ++depth;
    if (name[i] == ')' || name[i] == '}') --depth;
    if (name[i] == ' ' && depth == 0) {
      if (name.substr(0, i).ends_with("operator")) break;
      begin = i + 1;
    }
  }
  return name.substr(begin);
}

}  // namespace

std::string Demangle(const std::string& symbol) {
  if (!symbol.starts_with("_Z")) return symbol;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status),
      std::free);
  return status == 0 && text ? std::string(text.get()) : symbol;
}

std::string ShortName(std::string_view demangled) {
  const std::string plain = WithoutTemplateArguments(demangled);
  const std::string_view view = plain;
  const std::string_view name =
      WithoutReturnType(view.substr(0, ParametersBegin(view)));
  return std::string(name.empty() ? demangled : name);
}

}  // namespace dstrace::symbolize
