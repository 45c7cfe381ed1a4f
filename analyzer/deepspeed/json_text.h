// SPDX-License-Identifier: Apache-2.0
//
// JSON as people write it. Guarantee: every value and key knows its line and
// column; a mistake is named ("missing comma before ...") and, where the
// meaning is clear, reading goes on, so that one comma does not hide the
// other findings. Any bytes are safe as input; nesting is bounded.
// Thread-safety: pure function. Units: lines and columns count from 1, a
// column is a byte.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_JSON_TEXT_H_
#define DSTRACE_ANALYZER_DEEPSPEED_JSON_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

namespace dstrace::deepspeed {

struct TextPlace {
  int line = 0;
  int column = 0;
};

enum class JsonKind { kNull, kBool, kNumber, kString, kArray, kObject };

struct JsonMember;

struct JsonValue {
  JsonKind kind = JsonKind::kNull;
  bool boolean = false;
  double number = 0;
  std::string text;  // a string's characters, or a number as written
  std::vector<JsonValue> items;
  std::vector<JsonMember> members;
  TextPlace place;
};

struct JsonMember {
  std::string key;
  TextPlace place;
  JsonValue value;
};

struct SyntaxProblem {
  TextPlace place;
  std::string message;  // what is wrong, with what is missing
  std::string change;   // what to write
  // hjson, with which DeepSpeed reads a config given as a path, accepts it.
  bool hjson_accepts = false;
};

struct JsonText {
  JsonValue root;
  std::vector<SyntaxProblem> problems;
  std::vector<JsonMember> duplicates;  // the later ones; values are left out
  bool complete = false;  // false: reading stopped at the last problem
};

JsonText ReadJson(std::string_view text);

// The member of an object, the last one where a key is repeated (as Python's
// json does); nullptr when there is none or the value is not an object.
const JsonMember* FindMember(const JsonValue& object, std::string_view key);

// Follows a dotted path from the root; nullptr when any part is missing.
const JsonMember* FindPath(const JsonValue& root, std::string_view path);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_JSON_TEXT_H_
