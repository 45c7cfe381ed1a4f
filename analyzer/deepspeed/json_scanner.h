// SPDX-License-Identifier: Apache-2.0
//
// Tokens of JSON text with their places; comments, single quotes and
// non-JSON numbers are reported and then read as meant. Not thread-safe.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_JSON_SCANNER_H_
#define DSTRACE_ANALYZER_DEEPSPEED_JSON_SCANNER_H_

#include <string>
#include <string_view>
#include <vector>

#include "analyzer/deepspeed/json_text.h"

namespace dstrace::deepspeed {

enum class TokenType {
  kEnd,
  kOpenObject,
  kCloseObject,
  kOpenArray,
  kCloseArray,
  kColon,
  kEquals,
  kComma,
  kString,
  kNumber,
  kWord,
  kBad,
};

struct Token {
  TokenType type = TokenType::kEnd;
  TextPlace place;
  std::string text;
  double number = 0;
};

class Scanner {
 public:
  // problems must outlive the scanner.
  Scanner(std::string_view text, std::vector<SyntaxProblem>* problems);

  // Moves to the next token and returns it.
  const Token& Next();
  const Token& token() const { return token_; }
  // Just after the last character of the token before the current one.
  const TextPlace& previous_end() const { return previous_end_; }
  // True when the current token can begin a value (or a key).
  bool StartsValue() const;
  // The current token for a message, shortened.
  std::string Show() const;

  // Keeps at most kMostProblems.
  void Report(const TextPlace& place, std::string message, std::string change,
              bool hjson_accepts);

 private:
  static constexpr size_t kMostProblems = 20;

  bool AtEnd() const { return offset_ >= text_.size(); }
  char Peek(size_t ahead = 0) const;
  void Advance();
  void SkipSpaceAndComments();
  void SkipLine();
  void ReadString(char quote);
  void ReadEscape();
  void ReadWordOrNumber();

  std::string_view text_;
  std::vector<SyntaxProblem>* problems_;
  size_t offset_ = 0;
  TextPlace here_{1, 1};
  TextPlace previous_end_{1, 1};
  bool comment_reported_ = false;
  Token token_;
};

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_JSON_SCANNER_H_
