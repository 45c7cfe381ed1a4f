// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/json_scanner.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace dstrace::deepspeed {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsWordByte(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         c == '_' || c == '-' || c == '+' || c == '.' ||
         static_cast<unsigned char>(c) >= 0x80;
}

size_t SkipDigits(std::string_view text, size_t at) {
  while (at < text.size() && IsDigit(text[at])) ++at;
  return at;
}

// The grammar of RFC 8259; Python's json adds NaN and Infinity.
bool IsJsonNumber(std::string_view text) {
  if (text == "NaN" || text == "Infinity" || text == "-Infinity") return true;
  size_t at = !text.empty() && text[0] == '-' ? 1 : 0;
  size_t after = SkipDigits(text, at);
  if (after == at || (text[at] == '0' && after > at + 1)) return false;
  if (after < text.size() && text[after] == '.') {
    size_t fraction = after + 1;
    after = SkipDigits(text, fraction);
    if (after == fraction) return false;
  }
  if (after < text.size() && (text[after] == 'e' || text[after] == 'E')) {
    size_t exponent = after + 1;
    if (exponent < text.size() &&
        (text[exponent] == '+' || text[exponent] == '-')) {
      ++exponent;
    }
    after = SkipDigits(text, exponent);
    if (after == exponent) return false;
  }
  return after == text.size();
}

void AppendUtf8(unsigned code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (code >> 6)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xE0 | (code >> 12)));
    out->push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

}  // namespace

Scanner::Scanner(std::string_view text, std::vector<SyntaxProblem>* problems)
    : text_(text), problems_(problems) {
  if (text_.substr(0, 3) == "\xEF\xBB\xBF") {
    Report(here_, "the file begins with a byte order mark",
           "save it as UTF-8 without BOM", false);
    offset_ = 3;
  }
}

char Scanner::Peek(size_t ahead) const {
  return offset_ + ahead < text_.size() ? text_[offset_ + ahead] : '\0';
}

void Scanner::Advance() {
  if (text_[offset_] == '\n') {
    ++here_.line;
    here_.column = 1;
  } else {
    ++here_.column;
  }
  ++offset_;
}

void Scanner::SkipLine() {
  while (!AtEnd() && Peek() != '\n') Advance();
}

void Scanner::SkipSpaceAndComments() {
  while (!AtEnd()) {
    char c = Peek();
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      Advance();
      continue;
    }
    bool block = c == '/' && Peek(1) == '*';
    if (!block && c != '#' && !(c == '/' && Peek(1) == '/')) return;
    if (!comment_reported_) {
      Report(here_, "a comment; JSON has none", "remove the comments", true);
      comment_reported_ = true;
    }
    if (!block) {
      SkipLine();
      continue;
    }
    while (!AtEnd() && !(Peek() == '*' && Peek(1) == '/')) Advance();
    for (int i = 0; i < 2 && !AtEnd(); ++i) Advance();
  }
}

const Token& Scanner::Next() {
  previous_end_ = here_;
  SkipSpaceAndComments();
  token_ = Token();
  token_.place = here_;
  if (AtEnd()) return token_;
  char c = Peek();
  constexpr std::string_view kMarks = "{}[]:=,";
  constexpr TokenType kTypes[] = {
      TokenType::kOpenObject, TokenType::kCloseObject, TokenType::kOpenArray,
      TokenType::kCloseArray, TokenType::kColon,       TokenType::kEquals,
      TokenType::kComma};
  size_t mark = kMarks.find(c);
  if (mark != std::string_view::npos) {
    token_.type = kTypes[mark];
    token_.text = c;
    Advance();
  } else if (c == '"' || c == '\'') {
    ReadString(c);
  } else if (IsWordByte(c)) {
    ReadWordOrNumber();
  } else {
    token_.type = TokenType::kBad;
    token_.text = c;
    Advance();
  }
  return token_;
}

void Scanner::ReadString(char quote) {
  token_.type = TokenType::kString;
  TextPlace start = here_;
  Advance();
  while (!AtEnd() && Peek() != quote && Peek() != '\n') {
    if (Peek() == '\\') {
      ReadEscape();
    } else {
      token_.text.push_back(Peek());
      Advance();
    }
  }
  if (AtEnd() || Peek() == '\n') {
    Report(start,
           absl::StrCat("missing closing quote of the string that begins "
                        "with ",
                        Show()),
           absl::StrFormat("add %c at its end", quote), false);
    return;
  }
  Advance();
  if (quote == '\'') {
    Report(start, absl::StrCat("single quotes around ", Show()),
           "JSON strings stand in double quotes", true);
  }
}

void Scanner::ReadEscape() {
  TextPlace start = here_;
  Advance();
  char c = Peek();
  if (AtEnd() || c == '\n') return;
  Advance();
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  size_t letter = kLetters.find(c);
  if (letter != std::string_view::npos) {
    token_.text.push_back(kMeanings[letter]);
    return;
  }
  if (c == 'u') {
    unsigned code = 0;
    int digits = 0;
    for (; digits < 4; ++digits) {
      char h = Peek();
      bool letter_digit = (h >= 'a' && h <= 'f') || (h >= 'A' && h <= 'F');
      if (!IsDigit(h) && !letter_digit) break;
      code = code * 16 + (IsDigit(h) ? h - '0' : (h | 0x20) - 'a' + 10);
      Advance();
    }
    if (digits == 4) {
      AppendUtf8(code, &token_.text);
      return;
    }
  }
  Report(start, "not an escape of JSON", "write \\\\ for a backslash", false);
}

void Scanner::ReadWordOrNumber() {
  size_t start = offset_;
  while (!AtEnd() && IsWordByte(Peek())) Advance();
  std::string_view word = text_.substr(start, offset_ - start);
  token_.text = std::string(word);
  token_.type = TokenType::kWord;
  if (IsJsonNumber(word)) {
    token_.type = TokenType::kNumber;
    if (!absl::SimpleAtod(token_.text, &token_.number)) {
      token_.number = std::numeric_limits<double>::infinity();
    }
    return;
  }
  if (!IsDigit(word[0]) && word[0] != '.' && word[0] != '-' && word[0] != '+') {
    return;
  }
  token_.type = TokenType::kNumber;
  if (!absl::SimpleAtod(token_.text, &token_.number)) token_.number = 0;
  Report(token_.place, absl::StrCat("not a JSON number: ", Show()),
         "write it like 500000000 or 5e8", false);
}

bool Scanner::StartsValue() const {
  switch (token_.type) {
    case TokenType::kOpenObject:
    case TokenType::kOpenArray:
    case TokenType::kString:
    case TokenType::kNumber:
    case TokenType::kWord:
      return true;
    default:
      return false;
  }
}

std::string Scanner::Show() const {
  if (token_.type == TokenType::kEnd) return "the end of the file";
  constexpr size_t kLongest = 60;
  std::string text = token_.text.substr(0, kLongest);
  if (token_.text.size() > kLongest) text += "...";
  return absl::StrFormat("\"%s\"", text);
}

void Scanner::Report(const TextPlace& place, std::string message,
                     std::string change, bool hjson_accepts) {
  if (problems_->size() >= kMostProblems) return;
  problems_->push_back(
      {place, std::move(message), std::move(change), hjson_accepts});
}

}  // namespace dstrace::deepspeed
