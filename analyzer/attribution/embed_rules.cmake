# SPDX-License-Identifier: Apache-2.0
# cmake -DOUTPUT=builtin_rules.cc "-DFILES=a.json|b.json" -P embed_rules.cmake
string(REPLACE "|" ";" files "${FILES}")
set(entries "")
foreach(file IN LISTS files)
  file(READ "${file}" text)
  get_filename_component(name "${file}" NAME)
  string(APPEND entries "    {\"${name}\", R\"rules(${text})rules\"},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Made by embed_rules.cmake from rules/*.json.
#include \"analyzer/attribution/builtin_rules.h\"

namespace dstrace::attribution {
namespace {
constexpr BuiltInFile kFiles[] = {
${entries}};
}  // namespace
const std::span<const BuiltInFile> kBuiltInRules = kFiles;
}  // namespace dstrace::attribution
")
