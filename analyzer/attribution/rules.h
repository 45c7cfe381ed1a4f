// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_ATTRIBUTION_RULES_H_
#define DSTRACE_ANALYZER_ATTRIBUTION_RULES_H_

// Rules that give a stack its meaning. They are data: analyzer/attribution/
// rules/*.json are compiled in, `--rules FILE` adds more in front of them. The
// format is in docs/rules.md.

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dstrace::attribution {

// Matches one frame when every list that is not empty has a pattern for it.
struct FramePattern {
  std::vector<std::string> functions;  // FunctionMatch
  std::vector<std::string> files;      // FileMatch, source file
  std::vector<std::string> modules;    // GlobMatch, base name of the library
};

struct Rule {
  std::string tag;       // "zero3.regather": stable, for machines
  std::string category;  // "deepspeed", "optimizer", ...
  std::string label;  // "re-gather by Module.apply": for people, <= 28 columns
  // Innermost first: each must match a frame farther out than the one before.
  std::vector<FramePattern> match;
  std::vector<FramePattern> unless;  // no frame of the stack may match any
  std::string explanation;           // what this memory is
  std::string advice;                // what to change; empty: nothing to change
  // Who asked, where the stack has no Python frame; empty: a native function.
  std::string asker;
  int priority = 0;  // higher wins
  // The line to blame: of the user's frames outside the matched ones (true), or
  // the innermost of all, where the rule is about a user's own code (false).
  bool blame_outside = true;
};

// An immutable set of rules and of the words for library code.
// Thread-safety: const functions from any thread.
class RuleSet {
 public:
  // Parses one rules file. Errors name `origin` and the byte, or the rule.
  static absl::StatusOr<RuleSet> Parse(std::string_view json,
                                       const std::string& origin);
  // Reads and parses a file; NotFoundError where it cannot be read.
  static absl::StatusOr<RuleSet> Load(const std::string& path);
  // The rules compiled into this program.
  static const RuleSet& BuiltIn();

  // Puts the rules of `other` in front: on a tie they win.
  void Prepend(const RuleSet& other);

  const std::vector<Rule>& rules() const { return rules_; }
  // Files that are not the user's own code.
  const std::vector<std::string>& library_files() const {
    return library_files_;
  }
  // Functions that say nothing about who asked (call wrappers, decorators).
  const std::vector<FramePattern>& plumbing() const { return plumbing_; }

 private:
  std::vector<Rule> rules_;
  std::vector<std::string> library_files_;
  std::vector<FramePattern> plumbing_;
};

}  // namespace dstrace::attribution

#endif  // DSTRACE_ANALYZER_ATTRIBUTION_RULES_H_
