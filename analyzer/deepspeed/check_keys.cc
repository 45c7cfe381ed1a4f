// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analyzer/deepspeed/checks.h"
#include "analyzer/deepspeed/nearest.h"

namespace dstrace::deepspeed {
namespace {

std::string Join(const std::string& path, const std::string& key) {
  return path.empty() ? key : absl::StrCat(path, ".", key);
}

bool IsAutoValue(const JsonValue& value) {
  return value.kind == JsonKind::kString && value.text == "auto";
}

// Names that people use for remarks; JSON has no comments.
bool IsRemark(std::string_view key) {
  return key.empty() || key[0] == '_' || key[0] == '#' || key[0] == '/' ||
         key.substr(0, 7) == "comment";
}

class KeyWalker {
 public:
  KeyWalker(const ConfigView& view, std::vector<Finding>* findings)
      : view_(view),
        findings_(findings),
        version_(view.options().version),
        pydantic2_(version_ >= view.rules().pydantic2_since()) {
    std::optional<double> stage =
        view.EffectiveNumber("zero_optimization.stage");
    stage_ = stage ? static_cast<int>(std::clamp(*stage, 0.0, 3.0)) : 0;
  }

  void Walk(const JsonValue& object, const std::string& path) {
    const SectionRule* section = view_.rules().FindSection(path, version_);
    if (section == nullptr) return;
    for (const JsonMember& member : object.members) {
      std::string child = Join(path, member.key);
      const KeyRule* key = section->Find(member.key);
      if (key == nullptr) {
        Unknown(*section, member, child);
        continue;
      }
      if (!key->range.Holds(version_)) {
        OtherRelease(*section, *key, member, child);
        continue;
      }
      Known(*section, *key, member, child);
      if (member.value.kind == JsonKind::kObject) Walk(member.value, child);
    }
    BothSpellings(*section, object, path);
  }

 private:
  Finding& Add(const JsonMember& member, const std::string& path,
               Severity severity, const char* rule) {
    Finding finding;
    finding.severity = severity;
    finding.rule = rule;
    finding.place = {member.place.line, member.place.column, path};
    findings_->push_back(std::move(finding));
    return findings_->back();
  }

  bool HasFinding(const std::string& path) const {
    return std::any_of(
        findings_->begin(), findings_->end(),
        [&](const Finding& finding) { return finding.place.key == path; });
  }

  std::vector<std::string> ValidNames(const SectionRule& section) const {
    std::vector<std::string> names;
    for (const KeyRule& key : section.keys) {
      if (!key.range.Holds(version_) || key.deprecated) continue;
      names.push_back(key.name);
      if (!key.alias.empty()) names.push_back(key.alias);
    }
    return names;
  }

  void Unknown(const SectionRule& section, const JsonMember& member,
               const std::string& path) {
    if (section.unknown == UnknownKeys::kOpen) return;
    bool rejected = section.unknown == UnknownKeys::kRejected;
    if (!rejected && (IsRemark(member.key) || HasFinding(path))) return;
    std::string near = NearestName(member.key, ValidNames(section));
    if (rejected) {
      // A value "auto" is removed before the keys are checked.
      bool dropped = section.drops_auto && IsAutoValue(member.value);
      Finding& finding =
          Add(member, path, dropped ? Severity::kWarning : Severity::kError,
              "unknown-key");
      finding.message = absl::StrFormat(
          "\"%s\" is not a key of \"%s\" in DeepSpeed %s: it is %s.",
          member.key, section.path, FormatVersion(version_),
          dropped ? "dropped only because its value is \"auto\"" : "refused");
      finding.change =
          near.empty() ? "remove it" : absl::StrFormat("\"%s\"", near);
      finding.source = section.source;
      return;
    }
    std::string where =
        section.path.empty() ? "at the top level" : "in " + section.path;
    if (section.path.empty() && Misplaced(member, path)) return;
    Finding& finding =
        Add(member, path, near.empty() ? Severity::kNote : Severity::kWarning,
            near.empty() ? "ignored-key" : "misspelt-key");
    finding.message = absl::StrFormat(
        "DeepSpeed does not read \"%s\" %s and ignores it.", member.key, where);
    finding.change = near.empty() ? "" : absl::StrFormat("\"%s\"", near);
    finding.source = section.source;
  }

  bool Misplaced(const JsonMember& member, const std::string& path) {
    const SectionRule* zero =
        view_.rules().FindSection("zero_optimization", version_);
    if (zero == nullptr) return false;
    const KeyRule* key = zero->Find(member.key);
    if (key == nullptr || !key->range.Holds(version_)) return false;
    Finding& finding = Add(member, path, Severity::kWarning, "misplaced-key");
    finding.message = absl::StrFormat(
        "\"%s\" is ignored at the top level; it belongs in "
        "\"zero_optimization\".",
        member.key);
    finding.change = "move it into \"zero_optimization\"";
    finding.source = key->source;
    return true;
  }

  void OtherRelease(const SectionRule& section, const KeyRule& key,
                    const JsonMember& member, const std::string& path) {
    bool later = key.range.since && version_ < *key.range.since;
    bool rejected = section.unknown == UnknownKeys::kRejected;
    Finding& finding =
        Add(member, path, rejected ? Severity::kError : Severity::kWarning,
            later ? "key-of-later-release" : "key-of-earlier-release");
    finding.message = absl::StrFormat(
        "\"%s\" %s DeepSpeed %s; %s %s it.", member.key,
        later ? "came with" : "ended with",
        FormatVersion(later ? *key.range.since : *key.range.until),
        FormatVersion(version_), rejected ? "refuses" : "ignores");
    if (later) {
      finding.change = absl::StrFormat("remove it, or use DeepSpeed %s",
                                       FormatVersion(*key.range.since));
    } else {
      finding.change = key.renamed_to.empty()
                           ? "remove it"
                           : absl::StrFormat("\"%s\"", key.renamed_to);
    }
    finding.source = key.source;
  }

  void Known(const SectionRule& section, const KeyRule& key,
             const JsonMember& member, const std::string& path) {
    if (IsAutoValue(member.value)) return;  // CheckAuto's business
    CheckType(section, key, member, path);
    if (key.deprecated) CheckDeprecated(section, key, member, path);
    bool zero_key = section.path == "zero_optimization";
    if (zero_key && !key.stages.empty() &&
        std::find(key.stages.begin(), key.stages.end(), stage_) ==
            key.stages.end()) {
      OtherStage(key, member, path);
    }
  }

  void CheckType(const SectionRule& section, const KeyRule& key,
                 const JsonMember& member, const std::string& path) {
    std::string problem = TypeProblem(
        key, member.value,
        {pydantic2_, !key.strict_since || version_ >= *key.strict_since});
    if (problem.empty()) return;
    bool strict = section.unknown == UnknownKeys::kRejected;
    // The batch sizes and clipping are compared as numbers, which a string
    // does not survive; sections are opened as dictionaries.
    bool fails = strict || key.auto_effect == "crash" || !key.values.empty() ||
                 key.type == "section" || key.type == "section_or_bool";
    if (!strict && member.value.kind == JsonKind::kNull) fails = false;
    Finding& finding =
        Add(member, path, fails ? Severity::kError : Severity::kWarning,
            "wrong-type");
    finding.message = absl::StrFormat("\"%s\" %s.", member.key, problem);
    double number = 0;
    if (member.value.kind == JsonKind::kString &&
        absl::SimpleAtod(member.value.text, &number) && key.type == "int") {
      finding.change =
          absl::StrFormat("\"%s\": %s", member.key, ShowScalar(Scalar(number)));
    }
    finding.source = key.source;
  }

  void CheckDeprecated(const SectionRule& section, const KeyRule& key,
                       const JsonMember& member, const std::string& path) {
    const JsonMember* parent = FindPath(view_.root(), section.path);
    const JsonMember* replacement =
        parent == nullptr ? nullptr
                          : view_.Written(Join(section.path, key.replaced_by));
    bool both = replacement != nullptr && !key.both_allowed;
    Finding& finding =
        Add(member, path, both ? Severity::kError : Severity::kNote,
            both ? "deprecated-and-new" : "deprecated-key");
    finding.message =
        both ? absl::StrFormat(
                   "\"%s\" is the old name of \"%s\", which is set too: "
                   "DeepSpeed refuses both together.",
                   member.key, replacement->key)
             : absl::StrFormat("\"%s\" is deprecated.", member.key);
    finding.change = both ? "remove the old one"
                          : absl::StrFormat("\"%s\"", key.replaced_by);
    finding.source = key.source;
  }

  void OtherStage(const KeyRule& key, const JsonMember& member,
                  const std::string& path) {
    if (HasFinding(path)) return;
    // A switch that is off, or an offload to nowhere, asks for nothing.
    const JsonValue& value = member.value;
    bool asks = value.kind != JsonKind::kNull;
    if (value.kind == JsonKind::kObject) {
      const JsonMember* device = FindMember(value, "device");
      asks = device != nullptr && device->value.text != "none";
    } else if (value.kind == JsonKind::kBool) {
      asks = value.boolean;
    } else if (value.kind == JsonKind::kNumber) {
      asks = value.number > 0;
    }
    bool loses_memory = asks && (key.name == "offload_param" ||
                                 key.name == "offload_optimizer" ||
                                 key.name == "mics_shard_size");
    Finding& finding =
        Add(member, path, loses_memory ? Severity::kWarning : Severity::kNote,
            "ignored-at-stage");
    finding.message = absl::StrFormat(
        "\"%s\" has no effect at ZeRO stage %d (read by stage %s).", member.key,
        stage_, absl::StrJoin(key.stages, ", "));
    finding.change = "remove it, or change the stage";
    finding.source = key.stages_source.empty() ? key.source : key.stages_source;
  }

  // The same key under its two spellings: the second counts as unknown.
  void BothSpellings(const SectionRule& section, const JsonValue& object,
                     const std::string& path) {
    if (section.unknown != UnknownKeys::kRejected) return;
    for (const KeyRule& key : section.keys) {
      if (key.alias.empty() || !key.range.Holds(version_)) continue;
      const JsonMember* plain = FindMember(object, key.name);
      if (plain == nullptr || FindMember(object, key.alias) == nullptr) {
        continue;
      }
      Finding& finding =
          Add(*plain, Join(path, key.name), Severity::kError, "both-spellings");
      finding.message = absl::StrFormat(
          "\"%s\" and \"%s\" are the same setting; giving both is refused.",
          key.name, key.alias);
      finding.change = "keep one";
      finding.source = key.source;
    }
  }

  const ConfigView& view_;
  std::vector<Finding>* findings_;
  Version version_;
  bool pydantic2_;
  int stage_ = 0;
};

}  // namespace

void CheckKeys(const ConfigView& view, std::vector<Finding>* findings) {
  KeyWalker(view, findings).Walk(view.root(), "");
}

}  // namespace dstrace::deepspeed
