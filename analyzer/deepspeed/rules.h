// SPDX-License-Identifier: Apache-2.0
//
// The rules as data: which keys a DeepSpeed release knows, and which
// combinations it refuses or ignores. Guarantee: the built-in set covers the
// releases it names; a file of the same format adds to it or replaces rules
// of the same id. Thread-safety: immutable once built.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_RULES_H_
#define DSTRACE_ANALYZER_DEEPSPEED_RULES_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "analyzer/deepspeed/finding.h"
#include "analyzer/deepspeed/version.h"

namespace dstrace::deepspeed {

// null stands for "no such value".
using Scalar = std::variant<std::monostate, bool, double, std::string>;

struct VersionRange {
  std::optional<Version> since;
  std::optional<Version> until;  // the last release that has it
  bool Holds(const Version& version) const;
};

struct KeyRule {
  std::string name;
  std::string alias;  // a second accepted spelling
  std::string type;   // int, bool, float, number, str, list, dict, section...
  bool nullable = false;
  Scalar default_value;
  std::optional<double> min;
  std::optional<double> max;
  std::vector<std::string> values;
  VersionRange range;
  bool deprecated = false;
  bool both_allowed = false;  // the old and the new name may stand together
  std::string replaced_by;
  std::string renamed_to;
  std::vector<int> stages;  // ZeRO stages that read it; empty: all
  std::string stages_source;
  std::string auto_effect;  // "", "crash" or "truthy"
  bool counts_elements = false;
  // From this release on neither true nor false passes for a number, and
  // `min` and `max` hold.
  std::optional<Version> strict_since;
  std::string source;
};

enum class UnknownKeys { kOpen, kIgnored, kRejected };

struct SectionRule {
  std::string path;
  UnknownKeys unknown = UnknownKeys::kOpen;
  bool drops_auto = false;  // a value "auto" is removed before reading
  std::string auto_source;
  VersionRange range;
  std::string source;
  std::vector<KeyRule> keys;

  // By name or alias, whatever its version; nullptr when unknown.
  const KeyRule* Find(std::string_view name) const;
};

struct Condition {
  std::string key;
  std::string operation;
  std::vector<Scalar> values;
  double times = 1;
};

struct CombinationRule {
  std::string id;
  Severity severity = Severity::kNote;
  VersionRange range;
  std::string at;  // key whose place the finding gets; empty: the first one
  std::vector<Condition> when;
  std::string message;
  std::string change;
  std::string source;
};

// What a release does that no key of the config says.
struct BehaviourRule {
  std::string id;
  VersionRange range;
  std::vector<int> stages;  // ZeRO stages for which it holds; empty: all
  std::string source;
};

class RuleSet {
 public:
  // The rules built into the program.
  static const RuleSet& BuiltIn();
  // The built-in rules and those of a file's text over them. Error:
  // InvalidArgument naming the entry that cannot be read.
  static absl::StatusOr<RuleSet> WithExtension(std::string_view json);

  const SectionRule* FindSection(std::string_view path,
                                 const Version& version) const;
  const std::vector<CombinationRule>& combinations() const {
    return combinations_;
  }
  // Whether the release does what the behaviour of that id says.
  bool Behaves(std::string_view id, const Version& version, int stage) const;
  // What HF Trainer writes for "auto" at this path; empty: nothing.
  std::string HfTrainerFill(std::string_view path) const;
  bool AccelerateFills(std::string_view path) const;
  const Version& first() const { return first_; }
  const Version& last() const { return last_; }
  // From this release on configs are read by pydantic 2.
  const Version& pydantic2_since() const { return pydantic2_since_; }

 private:
  absl::Status Add(std::string_view json);

  std::vector<SectionRule> sections_;
  std::vector<CombinationRule> combinations_;
  std::vector<BehaviourRule> behaviours_;
  std::map<std::string, std::string, std::less<>> hf_fills_;
  std::vector<std::string> accelerate_fills_;
  Version first_;
  Version last_;
  Version pydantic2_since_;
};

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_RULES_H_
