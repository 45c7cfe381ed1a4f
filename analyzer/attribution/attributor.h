// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_ATTRIBUTION_ATTRIBUTOR_H_
#define DSTRACE_ANALYZER_ATTRIBUTION_ATTRIBUTOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/attribution/rules.h"
#include "analyzer/model/frame_text.h"
#include "analyzer/model/run.h"

namespace dstrace::attribution {

// What a stack says about the memory it asked for.
struct Story {
  const Rule* rule = nullptr;  // null: no rule matched
  // The line that asked, "train.py:12 in main": of the user's own code where
  // there is any, else of the innermost library code. Never empty.
  std::string asked_by;
  std::string asked_file;  // full path, "" where asked_by is not a source line
  uint32_t asked_line = 0;
  bool user_code = false;  // asked_by is a line of the user's own code
  // Through which library functions, outermost first:
  // "wrapped_fn_to_apply -> _allgather_params". May be empty.
  std::string via;
};

// Tells the story of each stack of one trace; each is worked out once.
// `stacks`, `frames` and `rules` must outlive it. Not thread-safe.
class Attributor {
 public:
  Attributor(const model::Stacks& stacks,
             const std::vector<model::FrameText>& frames, const RuleSet& rules);

  // Valid as long as this object. An id out of range reads as 0 (no stack).
  const Story& Tell(model::StackId id);
  // Whether a frame (index into Stacks::frames) is the user's own code.
  bool IsUserCode(uint32_t frame) const { return user_[frame] != 0; }

 private:
  // A match of one rule: the frames (positions in the stack) of its patterns.
  using Positions = std::vector<size_t>;

  Story Work(const model::Stack& stack);
  const Rule* FindRule(const model::Stack& stack, Positions* positions);
  bool MatchRule(size_t rule, const model::Stack& stack, Positions* positions);
  bool MatchFrame(size_t pattern, uint32_t frame);
  bool IsPlumbing(uint32_t frame);
  void NativeAsker(const model::Stack& stack, const Positions& positions,
                   Story* story);
  size_t EntryOf(const model::Stack& stack, size_t position) const;
  void FindAsker(const model::Stack& stack, const Positions& positions,
                 Story* story);
  void FindVia(const model::Stack& stack, const Positions& positions,
               size_t asker, Story* story);

  const model::Stacks& stacks_;
  const std::vector<model::FrameText>& frames_;
  const RuleSet& rules_;

  struct RuleRange {
    size_t match, unless, end;  // indices into patterns_
  };
  std::vector<const FramePattern*> patterns_;
  std::vector<RuleRange> ranges_;
  std::vector<size_t> plumbing_;          // indices into patterns_
  std::vector<int8_t> matched_;           // [pattern][frame]: -1 unknown, 0, 1
  std::vector<int8_t> user_;              // [frame]: the user's own code
  std::vector<std::vector<Story>> told_;  // [stack]: empty or one story
};

}  // namespace dstrace::attribution

#endif  // DSTRACE_ANALYZER_ATTRIBUTION_ATTRIBUTOR_H_
