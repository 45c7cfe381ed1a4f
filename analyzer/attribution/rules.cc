// SPDX-License-Identifier: Apache-2.0
#include "analyzer/attribution/rules.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "analyzer/attribution/builtin_rules.h"

namespace dstrace::attribution {
namespace {

using Json = nlohmann::json;

absl::Status Bad(const std::string& origin, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(origin, ": ", what));
}

// A string or a list of strings. False: neither.
bool ReadPatterns(const Json& value, std::vector<std::string>* out) {
  if (value.is_string()) {
    out->push_back(value.get<std::string>());
    return true;
  }
  if (!value.is_array()) return false;
  for (const Json& item : value) {
    if (!item.is_string()) return false;
    out->push_back(item.get<std::string>());
  }
  return !out->empty();
}

bool ReadFrame(const Json& value, FramePattern* out) {
  if (!value.is_object() || value.empty()) return false;
  for (const auto& [key, patterns] : value.items()) {
    std::vector<std::string>* list = key == "function" ? &out->functions
                                     : key == "file"   ? &out->files
                                     : key == "module" ? &out->modules
                                                       : nullptr;
    if (list == nullptr || !ReadPatterns(patterns, list)) return false;
  }
  return true;
}

bool ReadFrames(const Json& value, std::vector<FramePattern>* out) {
  if (!value.is_array()) return false;
  for (const Json& item : value) {
    if (!ReadFrame(item, &out->emplace_back())) return false;
  }
  return true;
}

bool ReadText(const Json& value, std::string* out) {
  if (!value.is_string()) return false;
  *out = value.get<std::string>();
  return true;
}

bool ReadField(const std::string& key, const Json& value, Rule* rule) {
  if (key == "tag") return ReadText(value, &rule->tag);
  if (key == "category") return ReadText(value, &rule->category);
  if (key == "label") return ReadText(value, &rule->label);
  if (key == "explanation") return ReadText(value, &rule->explanation);
  if (key == "advice") return ReadText(value, &rule->advice);
  if (key == "asker") return ReadText(value, &rule->asker);
  if (key == "match") return ReadFrames(value, &rule->match);
  if (key == "unless") return ReadFrames(value, &rule->unless);
  if (key == "priority" && value.is_number_integer()) {
    rule->priority = value.get<int>();
    return true;
  }
  if (key == "blame" && (value == "outside" || value == "innermost")) {
    rule->blame_outside = value == "outside";
    return true;
  }
  return key == "source" && value.is_string();  // where the fact is from
}

absl::StatusOr<Rule> ReadRule(const Json& value, const std::string& where) {
  if (!value.is_object()) return Bad(where, "is not an object");
  Rule rule;
  for (const auto& [key, field] : value.items()) {
    if (!ReadField(key, field, &rule)) {
      return Bad(where,
                 absl::StrCat("unknown or malformed field \"", key, "\""));
    }
  }
  if (rule.tag.empty()) return Bad(where, "has no \"tag\"");
  if (rule.match.empty())
    return Bad(where, absl::StrCat("\"", rule.tag, "\" has no \"match\""));
  if (rule.label.empty()) rule.label = rule.tag;
  return rule;
}

}  // namespace

absl::StatusOr<RuleSet> RuleSet::Parse(std::string_view json,
                                       const std::string& origin) {
  Json root;
  try {  // the one way this parser tells the position of an error
    root = Json::parse(json);
  } catch (const Json::parse_error& error) {
    return Bad(origin, absl::StrCat("invalid JSON at byte ", error.byte));
  }
  if (!root.is_object()) return Bad(origin, "is not a JSON object");
  RuleSet set;
  for (const auto& [key, value] : root.items()) {
    bool read = false;
    if (key == "rules" && value.is_array()) {
      for (size_t i = 0; i < value.size(); ++i) {
        auto rule = ReadRule(value[i], absl::StrCat(origin, ": rule ", i + 1));
        if (!rule.ok()) return rule.status();
        set.rules_.push_back(*std::move(rule));
      }
      read = true;
    } else if (key == "library_files") {
      read = ReadPatterns(value, &set.library_files_);
    } else if (key == "plumbing") {
      read = ReadFrames(value, &set.plumbing_);
    }
    if (!read) {
      return Bad(origin,
                 absl::StrCat("unknown or malformed field \"", key, "\""));
    }
  }
  return set;
}

absl::StatusOr<RuleSet> RuleSet::Load(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(
      std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file)
    return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  std::string text;
  char buffer[4096];
  size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof buffer, file.get())) > 0)
    text.append(buffer, got);
  if (std::ferror(file.get()))
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  return Parse(text, path);
}

const RuleSet& RuleSet::BuiltIn() {
  static const RuleSet* const set = [] {
    auto* all = new RuleSet;  // lives as long as the program
    for (const BuiltInFile& file : kBuiltInRules) {
      auto parsed = Parse(file.text, std::string(file.name));
      if (!parsed.ok()) {  // a test parses them all: only a broken build gets
                           // here
        std::fprintf(stderr, "%s\n", parsed.status().ToString().c_str());
        std::abort();
      }
      all->Prepend(*parsed);
    }
    return all;
  }();
  return *set;
}

void RuleSet::Prepend(const RuleSet& other) {
  rules_.insert(rules_.begin(), other.rules_.begin(), other.rules_.end());
  library_files_.insert(library_files_.begin(), other.library_files_.begin(),
                        other.library_files_.end());
  plumbing_.insert(plumbing_.begin(), other.plumbing_.begin(),
                   other.plumbing_.end());
}

}  // namespace dstrace::attribution
