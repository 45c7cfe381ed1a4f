// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "absl/strings/str_replace.h"
#include "analyzer/deepspeed/checks.h"

namespace dstrace::deepspeed {
namespace {

std::optional<double> AsNumber(const Scalar& value) {
  if (const double* number = std::get_if<double>(&value)) return *number;
  if (const bool* boolean = std::get_if<bool>(&value)) return *boolean ? 1 : 0;
  return std::nullopt;
}

bool Same(const Scalar& left, const Scalar& right) {
  if (left.index() == right.index()) return left == right;
  std::optional<double> a = AsNumber(left);
  std::optional<double> b = AsNumber(right);
  return a && b && *a == *b;
}

class Evaluator {
 public:
  explicit Evaluator(const ConfigView& view) : view_(view) {}

  bool Holds(const Condition& condition) const {
    const std::string& operation = condition.operation;
    if (operation == "present") return Member(condition) != nullptr;
    if (operation == "absent") return Absent(condition);
    if (operation == "auto") return view_.IsAuto(condition.key);
    if (operation == "null") {
      const JsonMember* member = Member(condition);
      return member != nullptr && member->value.kind == JsonKind::kNull;
    }
    return Compares(condition);
  }

 private:
  const JsonMember* Member(const Condition& condition) const {
    return view_.Written(condition.key);
  }

  bool Absent(const Condition& condition) const {
    const JsonMember* member = Member(condition);
    return member == nullptr || member->value.kind == JsonKind::kNull;
  }

  // A value in a rule may name a fact about the run.
  Scalar Resolve(const Scalar& value, double times) const {
    Scalar resolved = value;
    if (const auto* text = std::get_if<std::string>(&value)) {
      if (!text->empty() && (*text)[0] == '$') {
        resolved = view_.Effective(*text);
      }
    }
    if (double* number = std::get_if<double>(&resolved)) *number *= times;
    return resolved;
  }

  bool Compares(const Condition& condition) const {
    Scalar value = view_.Effective(condition.key);
    // An "auto" that is still there says nothing about the final value.
    if (value == Scalar(std::string("auto"))) return false;
    if (condition.operation == "one_of") {
      for (const Scalar& one : condition.values) {
        if (Same(value, one)) return true;
      }
      return false;
    }
    if (condition.values.empty()) return false;
    Scalar other = Resolve(condition.values[0], condition.times);
    if (std::holds_alternative<std::monostate>(other)) return false;
    if (condition.operation == "equals") return Same(value, other);
    if (condition.operation == "not_equals") return !Same(value, other);
    std::optional<double> left = AsNumber(value);
    std::optional<double> right = AsNumber(other);
    if (!left || !right) return false;
    if (condition.operation == "less") return *left < *right;
    if (condition.operation == "greater") return *left > *right;
    if (condition.operation == "at_least") return *left >= *right;
    if (condition.operation == "at_most") return *left <= *right;
    if (condition.operation == "not_divides") {
      return *left != 0 && std::fmod(*right, *left) != 0;
    }
    return false;
  }

  const ConfigView& view_;
};

// Fills {value} and {$fact}.
std::string Fill(const ConfigView& view, const std::string& text,
                 const Scalar& value) {
  std::string filled =
      absl::StrReplaceAll(text, {{"{value}", ShowScalar(value)}});
  for (const char* fact : {"$world_size", "$gpus_per_node", "$nodes"}) {
    std::string mark = std::string("{") + fact + "}";
    if (filled.find(mark) == std::string::npos) continue;
    filled =
        absl::StrReplaceAll(filled, {{mark, ShowScalar(view.Effective(fact))}});
  }
  return filled;
}

}  // namespace

void CheckCombinations(const ConfigView& view, std::vector<Finding>* findings) {
  Evaluator evaluator(view);
  for (const CombinationRule& rule : view.rules().combinations()) {
    if (!rule.range.Holds(view.options().version)) continue;
    bool holds = true;
    for (const Condition& condition : rule.when) {
      holds = holds && evaluator.Holds(condition);
    }
    if (!holds) continue;
    // The first condition is often the stage; the place is the next key.
    std::string at = rule.at;
    for (const Condition& condition : rule.when) {
      if (at.empty() && condition.key != "zero_optimization.stage" &&
          condition.key[0] != '$') {
        at = condition.key;
      }
    }
    if (at.empty()) at = rule.when.front().key;
    Finding finding = view.At(at, rule.severity, rule.id);
    Scalar value = view.Effective(at);
    finding.message = Fill(view, rule.message, value);
    finding.change = Fill(view, rule.change, value);
    finding.source = rule.source;
    findings->push_back(std::move(finding));
  }
}

}  // namespace dstrace::deepspeed
