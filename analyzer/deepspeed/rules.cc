// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "analyzer/deepspeed/embedded_rules.h"
#include "nlohmann/json.hpp"

namespace dstrace::deepspeed {
namespace {

using Json = nlohmann::json;

Scalar ToScalar(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  return std::monostate();
}

std::string Text(const Json& json, const char* name) {
  auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>()
                                                   : "";
}

bool Flag(const Json& json, const char* name) {
  auto found = json.find(name);
  return found != json.end() && found->is_boolean() && found->get<bool>();
}

std::optional<double> Number(const Json& json, const char* name) {
  auto found = json.find(name);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

absl::Status ReadRange(const Json& json, VersionRange* range) {
  for (auto [name, slot] :
       {std::pair{"since", &range->since}, std::pair{"until", &range->until}}) {
    std::string text = Text(json, name);
    if (text.empty()) continue;
    absl::StatusOr<Version> version = ParseVersion(text);
    if (!version.ok()) return version.status();
    *slot = *version;
  }
  return absl::OkStatus();
}

std::vector<int> ReadStages(const Json& json) {
  std::vector<int> stages;
  for (const Json& stage : json.value("stages", Json::array())) {
    if (stage.is_number_integer()) stages.push_back(stage.get<int>());
  }
  return stages;
}

absl::StatusOr<KeyRule> ReadKey(const std::string& name, const Json& json) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("key ", name));
  }
  KeyRule key;
  key.name = name;
  key.alias = Text(json, "alias");
  key.type = Text(json, "type");
  key.nullable = Flag(json, "nullable");
  if (json.contains("default")) key.default_value = ToScalar(json["default"]);
  key.min = Number(json, "min");
  key.max = Number(json, "max");
  for (const Json& value : json.value("values", Json::array())) {
    if (value.is_string()) key.values.push_back(value.get<std::string>());
  }
  absl::Status range = ReadRange(json, &key.range);
  if (!range.ok()) return range;
  if (std::string strict = Text(json, "strict_since"); !strict.empty()) {
    absl::StatusOr<Version> version = ParseVersion(strict);
    if (!version.ok()) return version.status();
    key.strict_since = *version;
  }
  key.deprecated = Flag(json, "deprecated");
  key.both_allowed = Flag(json, "both_allowed");
  key.replaced_by = Text(json, "replaced_by");
  key.renamed_to = Text(json, "renamed_to");
  key.stages = ReadStages(json);
  key.stages_source = Text(json, "stages_source");
  key.auto_effect = Text(json, "auto");
  key.counts_elements = Text(json, "unit") == "elements";
  key.source = Text(json, "source");
  return key;
}

absl::StatusOr<SectionRule> ReadSection(const Json& json) {
  if (!json.is_object() || !json.contains("path") ||
      !json.value("keys", Json::object()).is_object()) {
    return absl::InvalidArgumentError("a section needs path and keys");
  }
  SectionRule section;
  section.path = Text(json, "path");
  std::string unknown = Text(json, "unknown");
  section.unknown = unknown == "reject"   ? UnknownKeys::kRejected
                    : unknown == "ignore" ? UnknownKeys::kIgnored
                                          : UnknownKeys::kOpen;
  section.drops_auto = Flag(json, "drops_auto");
  section.auto_source = Text(json, "auto_source");
  section.source = Text(json, "source");
  absl::Status range = ReadRange(json, &section.range);
  if (!range.ok()) return range;
  const Json keys = json.value("keys", Json::object());
  for (const auto& [name, entry] : keys.items()) {
    absl::StatusOr<KeyRule> key = ReadKey(name, entry);
    if (!key.ok()) return key.status();
    section.keys.push_back(*std::move(key));
  }
  return section;
}

absl::StatusOr<Condition> ReadCondition(const Json& json) {
  if (!json.is_object() || Text(json, "key").empty() ||
      Text(json, "is").empty()) {
    return absl::InvalidArgumentError("a condition needs key and is");
  }
  Condition condition;
  condition.key = Text(json, "key");
  condition.operation = Text(json, "is");
  condition.times = Number(json, "times").value_or(1);
  if (!json.contains("value")) return condition;
  const Json& value = json["value"];
  if (value.is_array()) {
    for (const Json& one : value) condition.values.push_back(ToScalar(one));
  } else {
    condition.values.push_back(ToScalar(value));
  }
  return condition;
}

absl::StatusOr<CombinationRule> ReadCombination(const Json& json) {
  if (!json.is_object() || Text(json, "id").empty() ||
      !json.value("when", Json::array()).is_array() ||
      json.value("when", Json::array()).empty()) {
    return absl::InvalidArgumentError("a rule needs id and when");
  }
  CombinationRule rule;
  rule.id = Text(json, "id");
  std::string severity = Text(json, "severity");
  rule.severity = severity == "error"     ? Severity::kError
                  : severity == "warning" ? Severity::kWarning
                                          : Severity::kNote;
  absl::Status range = ReadRange(json, &rule.range);
  if (!range.ok()) return range;
  rule.at = Text(json, "at");
  for (const Json& entry : json["when"]) {
    absl::StatusOr<Condition> condition = ReadCondition(entry);
    if (!condition.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rule ", rule.id, ": ", std::string(condition.status().message())));
    }
    rule.when.push_back(*std::move(condition));
  }
  rule.message = Text(json, "message");
  rule.change = Text(json, "change");
  rule.source = Text(json, "source");
  return rule;
}

absl::StatusOr<BehaviourRule> ReadBehaviour(const Json& json) {
  if (!json.is_object() || Text(json, "id").empty()) {
    return absl::InvalidArgumentError("a behaviour needs an id");
  }
  BehaviourRule rule;
  rule.id = Text(json, "id");
  absl::Status range = ReadRange(json, &rule.range);
  if (!range.ok()) return range;
  rule.stages = ReadStages(json);
  rule.source = Text(json, "source");
  return rule;
}

}  // namespace

bool VersionRange::Holds(const Version& version) const {
  return (!since || version >= *since) && (!until || version <= *until);
}

const KeyRule* SectionRule::Find(std::string_view name) const {
  for (const KeyRule& key : keys) {
    if (key.name == name || (!key.alias.empty() && key.alias == name)) {
      return &key;
    }
  }
  return nullptr;
}

const RuleSet& RuleSet::BuiltIn() {
  // Never destroyed: rules are read until the very end of the program.
  static const RuleSet* const rules = [] {
    auto* built = new RuleSet;
    absl::Status status = built->Add(kEmbeddedRules);
    if (!status.ok()) std::abort();  // the build embeds a broken file
    return built;
  }();
  return *rules;
}

absl::StatusOr<RuleSet> RuleSet::WithExtension(std::string_view json) {
  RuleSet rules = BuiltIn();
  absl::Status status = rules.Add(json);
  if (!status.ok()) return status;
  return rules;
}

absl::Status RuleSet::Add(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError("the rules are not a JSON object");
  }
  for (const Json& entry : json.value("sections", Json::array())) {
    absl::StatusOr<SectionRule> section = ReadSection(entry);
    if (!section.ok()) return section.status();
    auto same = std::find_if(sections_.begin(), sections_.end(),
                             [&](const SectionRule& old) {
                               return old.path == section->path &&
                                      old.range.since == section->range.since;
                             });
    if (same == sections_.end()) {
      sections_.push_back(*std::move(section));
      continue;
    }
    for (KeyRule& key : section->keys) {
      std::erase_if(same->keys,
                    [&](const KeyRule& old) { return old.name == key.name; });
      same->keys.push_back(std::move(key));
    }
  }
  for (const Json& entry : json.value("rules", Json::array())) {
    absl::StatusOr<CombinationRule> rule = ReadCombination(entry);
    if (!rule.ok()) return rule.status();
    std::erase_if(combinations_, [&](const CombinationRule& old) {
      return old.id == rule->id;
    });
    combinations_.push_back(*std::move(rule));
  }
  for (const Json& entry : json.value("behaviours", Json::array())) {
    absl::StatusOr<BehaviourRule> rule = ReadBehaviour(entry);
    if (!rule.ok()) return rule.status();
    std::erase_if(behaviours_,
                  [&](const BehaviourRule& old) { return old.id == rule->id; });
    behaviours_.push_back(*std::move(rule));
  }
  const Json fills = json.value("hf_trainer_fills", Json::object());
  for (const auto& [path, value] : fills.items()) {
    if (value.is_string()) hf_fills_[path] = value.get<std::string>();
  }
  for (const Json& path : json.value("accelerate_fills", Json::array())) {
    if (path.is_string()) {
      accelerate_fills_.push_back(path.get<std::string>());
    }
  }
  const Json covers = json.value("covers", Json::object());
  for (auto [value, slot] :
       {std::pair{Text(covers, "from"), &first_},
        std::pair{Text(covers, "to"), &last_},
        std::pair{Text(json, "pydantic2_since"), &pydantic2_since_}}) {
    if (value.empty()) continue;
    absl::StatusOr<Version> version = ParseVersion(value);
    if (!version.ok()) return version.status();
    *slot = *version;
  }
  return absl::OkStatus();
}

const SectionRule* RuleSet::FindSection(std::string_view path,
                                        const Version& version) const {
  for (const SectionRule& section : sections_) {
    if (section.path == path && section.range.Holds(version)) return &section;
  }
  return nullptr;
}

bool RuleSet::Behaves(std::string_view id, const Version& version,
                      int stage) const {
  for (const BehaviourRule& rule : behaviours_) {
    if (rule.id != id || !rule.range.Holds(version)) continue;
    return rule.stages.empty() ||
           std::find(rule.stages.begin(), rule.stages.end(), stage) !=
               rule.stages.end();
  }
  return false;
}

std::string RuleSet::HfTrainerFill(std::string_view path) const {
  auto found = hf_fills_.find(path);
  return found == hf_fills_.end() ? "" : found->second;
}

bool RuleSet::AccelerateFills(std::string_view path) const {
  return std::find(accelerate_fills_.begin(), accelerate_fills_.end(), path) !=
         accelerate_fills_.end();
}

}  // namespace dstrace::deepspeed
