// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/json_text.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/deepspeed/json_scanner.h"

namespace dstrace::deepspeed {
namespace {

// Deeper than any config; keeps recursion off the end of the stack.
constexpr int kDeepestNesting = 100;

class Reader {
 public:
  explicit Reader(std::string_view text) : scanner_(text, &out_.problems) {}

  JsonText Run() {
    if (scanner_.Next().type == TokenType::kEnd) {
      scanner_.Report(scanner_.token().place, "the file is empty",
                      "write a JSON object", false);
      return std::move(out_);
    }
    out_.complete = ReadValue(&out_.root, 0);
    if (out_.complete && scanner_.token().type != TokenType::kEnd) {
      scanner_.Report(
          scanner_.token().place,
          absl::StrCat("text after the end of the JSON: ", scanner_.Show()),
          "remove it, or look for a closing bracket too many", false);
      out_.complete = false;
    }
    if (out_.complete && out_.root.kind != JsonKind::kObject) {
      scanner_.Report(out_.root.place, "the config is not a JSON object",
                      "begin the file with {", false);
      out_.complete = false;
    }
    return std::move(out_);
  }

 private:
  bool Stop(const TextPlace& place, std::string message, std::string change) {
    scanner_.Report(place, std::move(message), std::move(change), false);
    return false;
  }

  // Reads the value that begins at the current token and leaves the token
  // after it current. False: reading cannot go on.
  bool ReadValue(JsonValue* value, int depth) {
    const Token& token = scanner_.token();
    value->place = token.place;
    if (depth > kDeepestNesting) {
      return Stop(token.place, "nested too deeply", "flatten the file");
    }
    switch (token.type) {
      case TokenType::kOpenObject:
        return ReadObject(value, depth);
      case TokenType::kOpenArray:
        return ReadArray(value, depth);
      case TokenType::kString:
        value->kind = JsonKind::kString;
        value->text = token.text;
        break;
      case TokenType::kNumber:
        value->kind = JsonKind::kNumber;
        value->number = token.number;
        value->text = token.text;
        break;
      case TokenType::kWord:
        if (!ReadWord(token, value)) return false;
        break;
      default:
        return Stop(token.place,
                    absl::StrCat("missing value before ", scanner_.Show()),
                    "write the value, or remove the key");
    }
    scanner_.Next();
    return true;
  }

  bool ReadWord(const Token& token, JsonValue* value) {
    std::string_view word = token.text;
    if (word == "true" || word == "false" || word == "True" ||
        word == "False") {
      value->kind = JsonKind::kBool;
      value->boolean = word[0] == 't' || word[0] == 'T';
      if (word[0] < 'a') Python(token, value->boolean ? "true" : "false");
      return true;
    }
    if (word == "null" || word == "None") {
      value->kind = JsonKind::kNull;
      if (word == "None") Python(token, "null");
      return true;
    }
    scanner_.Report(token.place,
                    absl::StrCat("missing quotes around ", scanner_.Show()),
                    absl::StrFormat("\"%s\"", token.text), false);
    value->kind = JsonKind::kString;
    value->text = token.text;
    return true;
  }

  void Python(const Token& token, const char* json) {
    scanner_.Report(token.place,
                    absl::StrFormat("%s is Python, not JSON", token.text), json,
                    false);
  }

  bool ReadArray(JsonValue* value, int depth) {
    value->kind = JsonKind::kArray;
    TextPlace opened = scanner_.token().place;
    scanner_.Next();
    while (scanner_.token().type != TokenType::kCloseArray) {
      if (scanner_.token().type == TokenType::kEnd) {
        return Unclosed(']', '[', opened);
      }
      value->items.emplace_back();
      if (!ReadValue(&value->items.back(), depth + 1)) return false;
      if (!ReadSeparator(TokenType::kCloseArray, ']', '[', opened)) {
        return false;
      }
    }
    scanner_.Next();
    return true;
  }

  bool ReadObject(JsonValue* value, int depth) {
    value->kind = JsonKind::kObject;
    TextPlace opened = scanner_.token().place;
    std::set<std::string> seen;
    scanner_.Next();
    while (scanner_.token().type != TokenType::kCloseObject) {
      if (scanner_.token().type == TokenType::kEnd) {
        return Unclosed('}', '{', opened);
      }
      JsonMember member;
      if (!ReadKey(&member)) return false;
      if (!ReadValue(&member.value, depth + 1)) return false;
      if (!seen.insert(member.key).second) {
        out_.duplicates.push_back({member.key, member.place, {}});
      }
      value->members.push_back(std::move(member));
      if (!ReadSeparator(TokenType::kCloseObject, '}', '{', opened)) {
        return false;
      }
    }
    scanner_.Next();
    return true;
  }

  bool ReadKey(JsonMember* member) {
    const Token& token = scanner_.token();
    member->place = token.place;
    member->key = token.text;
    if (token.type == TokenType::kWord) {
      scanner_.Report(
          token.place,
          absl::StrCat("missing quotes around the key ", scanner_.Show()),
          absl::StrFormat("\"%s\"", token.text), true);
    } else if (token.type != TokenType::kString) {
      return Stop(token.place,
                  absl::StrCat("missing key before ", scanner_.Show()),
                  "a key is a string in double quotes");
    }
    if (scanner_.Next().type == TokenType::kColon) {
      scanner_.Next();
      return true;
    }
    if (scanner_.token().type == TokenType::kEquals) {
      scanner_.Report(scanner_.token().place,
                      absl::StrFormat("\"=\" in place of the colon after "
                                      "\"%s\"",
                                      member->key),
                      ":", false);
      scanner_.Next();
      return true;
    }
    scanner_.Report(scanner_.token().place,
                    absl::StrFormat("missing colon after \"%s\"", member->key),
                    absl::StrFormat("\"%s\": ...", member->key), false);
    return scanner_.StartsValue();
  }

  // After a value: a comma, or the end of the container, or a mistake.
  bool ReadSeparator(TokenType close, char bracket, char open,
                     const TextPlace& opened) {
    const Token& token = scanner_.token();
    if (token.type == close) return true;
    if (token.type == TokenType::kComma) {
      TextPlace comma = token.place;
      scanner_.Next();
      if (scanner_.token().type == close) {
        scanner_.Report(
            comma,
            absl::StrFormat("a comma before the closing \"%c\"", bracket),
            "remove the comma", true);
      } else if (scanner_.token().type == TokenType::kComma) {
        return Stop(scanner_.token().place, "two commas in a row",
                    "remove one");
      }
      return true;
    }
    if (token.type == TokenType::kEnd) return Unclosed(bracket, open, opened);
    if (scanner_.StartsValue()) {
      const TextPlace& end = scanner_.previous_end();
      scanner_.Report(
          token.place, absl::StrCat("missing comma before ", scanner_.Show()),
          absl::StrFormat("put a comma at the end of line %d (column %d)",
                          end.line, end.column),
          token.place.line > end.line);
      return true;
    }
    return Stop(token.place,
                absl::StrFormat("missing comma or \"%c\" before %s", bracket,
                                scanner_.Show()),
                absl::StrFormat("close the \"%c\" of line %d first", open,
                                opened.line));
  }

  bool Unclosed(char bracket, char open, const TextPlace& opened) {
    return Stop(scanner_.token().place,
                absl::StrFormat("missing \"%c\": the \"%c\" of line %d, "
                                "column %d is never closed",
                                bracket, open, opened.line, opened.column),
                absl::StrFormat("add \"%c\"", bracket));
  }

  JsonText out_;
  Scanner scanner_;
};

}  // namespace

JsonText ReadJson(std::string_view text) { return Reader(text).Run(); }

const JsonMember* FindMember(const JsonValue& object, std::string_view key) {
  if (object.kind != JsonKind::kObject) return nullptr;
  const JsonMember* found = nullptr;
  for (const JsonMember& member : object.members) {
    if (member.key == key) found = &member;
  }
  return found;
}

const JsonMember* FindPath(const JsonValue& root, std::string_view path) {
  const JsonValue* object = &root;
  while (true) {
    size_t dot = path.find('.');
    const JsonMember* member = FindMember(*object, path.substr(0, dot));
    if (member == nullptr || dot == std::string_view::npos) return member;
    object = &member->value;
    path.remove_prefix(dot + 1);
  }
}

}  // namespace dstrace::deepspeed
