# SPDX-License-Identifier: Apache-2.0
# cmake -DINPUT=rules.json -DOUTPUT=rules.cc -P embed_rules.cmake
# One raw string literal per line, which keeps every literal far below the
# length limit of compilers.
file(READ "${INPUT}" text)
string(REGEX REPLACE "\n" ")dstrace\"\n  \"\\\\n\" R\"dstrace(" text "${text}")
file(WRITE "${OUTPUT}.new"
"// Generated from rules/deepspeed.json. Do not edit.
#include \"analyzer/deepspeed/embedded_rules.h\"

namespace dstrace::deepspeed {

const std::string_view kEmbeddedRules =
  R\"dstrace(${text})dstrace\";

}  // namespace dstrace::deepspeed
")
execute_process(COMMAND "${CMAKE_COMMAND}" -E copy_if_different "${OUTPUT}.new" "${OUTPUT}")
