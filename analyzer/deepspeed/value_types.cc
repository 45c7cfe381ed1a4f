// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/deepspeed/checks.h"

namespace dstrace::deepspeed {
namespace {

std::string KindName(const JsonValue& value) {
  switch (value.kind) {
    case JsonKind::kNull:
      return "null";
    case JsonKind::kBool:
      return value.boolean ? "true" : "false";
    case JsonKind::kNumber:
      return value.text;
    case JsonKind::kString:
      return absl::StrFormat("\"%s\"", value.text.substr(0, 40));
    case JsonKind::kArray:
      return "a list";
    case JsonKind::kObject:
      break;
  }
  return "an object";
}

bool IsWholeNumberText(const std::string& written) {
  std::string text = written;
  absl::StripAsciiWhitespace(&text);
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    text.erase(0, 1);
  }
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

std::string BadInt(const JsonValue& value, bool pydantic2) {
  if (value.kind == JsonKind::kBool) return "";
  if (value.kind == JsonKind::kNumber) {
    if (!std::isfinite(value.number)) return "a finite number";
    if (!pydantic2) return "";
    if (value.number != std::floor(value.number)) return "a whole number";
    // Written as a float it goes through 64 bits; 10^30 in digits would do.
    bool as_float = value.text.find_first_of(".eE") != std::string::npos;
    bool fits = std::fabs(value.number) < 9223372036854775808.0;
    return fits || !as_float ? "" : "a whole number of at most 64 bits";
  }
  if (value.kind == JsonKind::kString) {
    return IsWholeNumberText(value.text) ? "" : "a number without quotes";
  }
  return "a number";
}

std::string BadBool(const JsonValue& value) {
  if (value.kind == JsonKind::kBool) return "";
  if (value.kind == JsonKind::kNumber) {
    return value.number == 0 || value.number == 1 ? "" : "true or false";
  }
  if (value.kind != JsonKind::kString) return "true or false";
  std::string lower = absl::AsciiStrToLower(value.text);
  for (const char* word : {"0", "off", "f", "false", "n", "no", "1", "on", "t",
                           "true", "y", "yes"}) {
    if (lower == word) return "";
  }
  return "true or false";
}

std::string BadStage(const JsonValue& value, bool pydantic2) {
  double stage = value.number;
  if (value.kind == JsonKind::kBool) return "";
  if (value.kind == JsonKind::kString && pydantic2 &&
      absl::SimpleAtod(value.text, &stage)) {
    // pydantic 2 reads "3" as 3; pydantic 1 refuses it.
  } else if (value.kind != JsonKind::kNumber) {
    return "0, 1, 2 or 3";
  }
  bool whole = stage == std::floor(stage);
  return whole && stage >= 0 && stage <= 3 ? "" : "0, 1, 2 or 3";
}

std::string BadFloat(const JsonValue& value) {
  double ignored = 0;
  if (value.kind == JsonKind::kNumber || value.kind == JsonKind::kBool) {
    return "";
  }
  if (value.kind == JsonKind::kString &&
      absl::SimpleAtod(value.text, &ignored)) {
    return "";
  }
  return "a number";
}

// What the key wants instead of the value; empty when the value will do.
std::string Wanted(const KeyRule& key, const JsonValue& value, bool pydantic2) {
  const std::string& type = key.type;
  if (type == "int") return BadInt(value, pydantic2);
  if (type == "bool") return BadBool(value);
  if (type == "float" || type == "number") return BadFloat(value);
  if (type == "stage") return BadStage(value, pydantic2);
  if (type == "device") {
    bool known =
        value.kind == JsonKind::kString &&
        (value.text == "none" || value.text == "cpu" || value.text == "nvme");
    return known ? "" : "\"none\", \"cpu\" or \"nvme\"";
  }
  if (type == "path") {
    return value.kind == JsonKind::kString ? "" : "a path in quotes";
  }
  if (type == "str") {
    // pydantic 1 turns any scalar into its text.
    bool turned = !pydantic2 && (value.kind == JsonKind::kNumber ||
                                 value.kind == JsonKind::kBool);
    return value.kind == JsonKind::kString || turned ? "" : "a string";
  }
  if (type == "list") return value.kind == JsonKind::kArray ? "" : "a list";
  if (type == "section" || type == "dict") {
    // pydantic 1 takes an empty list or string for an empty dictionary.
    bool empty = (value.kind == JsonKind::kArray && value.items.empty()) ||
                 (value.kind == JsonKind::kString && value.text.empty());
    if (!pydantic2 && empty) return "";
    return value.kind == JsonKind::kObject ? "" : "an object { }";
  }
  if (type == "section_or_bool") {
    bool fits =
        value.kind == JsonKind::kObject || value.kind == JsonKind::kBool;
    return fits ? "" : "an object { }";
  }
  return "";
}

}  // namespace

std::string TypeProblem(const KeyRule& key, const JsonValue& value,
                        const TypeRules& rules) {
  if (value.kind == JsonKind::kNull && (key.nullable || key.type == "any")) {
    return "";
  }
  std::string wanted = Wanted(key, value, rules.pydantic2);
  bool refuses_bool = key.strict_since && rules.strict;
  if (refuses_bool && value.kind == JsonKind::kBool) {
    wanted = "a number, not true or false";
  }
  if (!wanted.empty()) {
    return absl::StrCat("is ", KindName(value), ", must be ", wanted);
  }
  double number = value.number;
  bool bounded = rules.strict && (key.min || key.max);
  bool numeric = bounded && (value.kind == JsonKind::kNumber ||
                             (value.kind == JsonKind::kString &&
                              absl::SimpleAtod(value.text, &number)));
  if (refuses_bool && numeric && !std::isfinite(number)) {
    return absl::StrCat("is ", KindName(value), ", must be a finite number");
  }
  // pydantic 1 cuts the fraction off first: -0.5 becomes 0.
  if (key.type == "int" && !rules.pydantic2) number = std::trunc(number);
  if (numeric && key.min && number < *key.min) {
    return absl::StrFormat("is %s, must be at least %g", KindName(value),
                           *key.min);
  }
  if (numeric && key.max && number > *key.max) {
    return absl::StrFormat("is %s, must be at most %g", KindName(value),
                           *key.max);
  }
  if (!key.values.empty() && value.kind == JsonKind::kString &&
      std::find(key.values.begin(), key.values.end(),
                absl::AsciiStrToLower(value.text)) == key.values.end()) {
    std::string all;
    for (const std::string& one : key.values) {
      absl::StrAppend(&all, all.empty() ? "" : ", ", "\"", one, "\"");
    }
    return absl::StrCat("is ", KindName(value), ", must be one of ", all);
  }
  return "";
}

}  // namespace dstrace::deepspeed
