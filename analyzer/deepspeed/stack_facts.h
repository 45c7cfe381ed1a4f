// SPDX-License-Identifier: Apache-2.0
//
// What the stacks of a trace say in the terms of this room, each worked out
// once. Thread-safety: read-only after construction.
#ifndef DSTRACE_ANALYZER_DEEPSPEED_STACK_FACTS_H_
#define DSTRACE_ANALYZER_DEEPSPEED_STACK_FACTS_H_

#include <string>
#include <vector>

#include "analyzer/deepspeed/tags.h"
#include "analyzer/model/frame_text.h"
#include "analyzer/model/run.h"

namespace dstrace::deepspeed {

struct StackFact {
  Tag tag = Tag::kOther;
  Phase phase = Phase::kUnknown;
  bool initialize = false;  // under deepspeed.initialize
  bool load = false;        // told by frames to be part of loading
  // Innermost first, "function (path:line)": the Python frames, or the native
  // ones where there are no others.
  std::vector<std::string> frames;
};

class StackFacts {
 public:
  // `frames` are the words for stacks.frames.
  StackFacts(const model::Stacks& stacks,
             const std::vector<model::FrameText>& frames);

  // An id out of range reads as 0, no stack.
  const StackFact& Of(model::StackId id) const {
    return facts_[id < facts_.size() ? id : 0];
  }
  const std::vector<StackFact>& all() const { return facts_; }

 private:
  std::vector<StackFact> facts_;  // never empty
};

}  // namespace dstrace::deepspeed

#endif  // DSTRACE_ANALYZER_DEEPSPEED_STACK_FACTS_H_
