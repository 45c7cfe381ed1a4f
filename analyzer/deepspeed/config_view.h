// SPDX-License-Identifier: Apache-2.0
//
// The config as the checks see it: what is written, and what DeepSpeed takes
// it for. Thread-safety: read-only. The referenced objects must outlive it.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_CONFIG_VIEW_H_
#define DSTRACE_ANALYZER_DEEPSPEED_CONFIG_VIEW_H_

#include <optional>
#include <string>
#include <string_view>

#include "analyzer/deepspeed/config_check.h"
#include "analyzer/deepspeed/json_text.h"
#include "analyzer/deepspeed/rules.h"

namespace dstrace::deepspeed {

class ConfigView {
 public:
  ConfigView(const JsonValue& root, const CheckOptions& options,
             const RuleSet& rules)
      : root_(root), options_(options), rules_(rules) {}

  const JsonValue& root() const { return root_; }
  const CheckOptions& options() const { return options_; }
  const RuleSet& rules() const { return rules_; }

  // What is written at the path under its name or its other spelling.
  const JsonMember* Written(std::string_view path) const;
  bool IsAuto(std::string_view path) const;

  // The value in force: as written, or the release's default where nothing or
  // a dropped "auto" stands. Paths that begin with $ are facts about the run
  // ($world_size, $nodes, ...); those not known give null, as does a key the
  // release does not have.
  Scalar Effective(std::string_view path) const;
  std::optional<double> EffectiveNumber(std::string_view path) const;
  bool EffectiveTrue(std::string_view path) const;

  int gpus_per_node() const;
  int nodes() const;  // 0: not known

  // A finding at the place of the path, or of its nearest written parent.
  Finding At(std::string_view path, Severity severity,
             std::string_view rule) const;

 private:
  Scalar Fact(std::string_view name) const;
  // The pair of section rule and key rule of a path; null when unknown.
  const KeyRule* FindKey(std::string_view path,
                         const SectionRule** section) const;

  const JsonValue& root_;
  const CheckOptions& options_;
  const RuleSet& rules_;
};

// The scalar of a JSON value; null for null, arrays and objects.
Scalar ToScalar(const JsonValue& value);

// "500000000", "true", "cpu": as the value would be written.
std::string ShowScalar(const Scalar& value);

Settings ReadSettings(const ConfigView& view);

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_CONFIG_VIEW_H_
