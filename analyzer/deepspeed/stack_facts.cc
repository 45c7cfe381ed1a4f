// SPDX-License-Identifier: Apache-2.0
#include "analyzer/deepspeed/stack_facts.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace dstrace::deepspeed {
namespace {

// "GatheredParameters.__enter__" stays, "Init._partition_param" and
// "partition_after.<locals>.wrapper" become their last part: class names are
// only there since Python 3.11 and say most in front of special methods.
std::string ShortName(const std::string& function) {
  size_t dot = function.rfind('.');
  if (dot == std::string::npos) return function;
  std::string last = function.substr(dot + 1);
  if (!absl::StartsWith(last, "__")) return last;
  size_t before = function.rfind('.', dot - 1);
  return before == std::string::npos ? function : function.substr(before + 1);
}

std::string Words(const model::FrameText& frame, bool whole_name) {
  if (!frame.python) return frame.function + " (" + frame.module + ")";
  std::string name = whole_name ? frame.function : ShortName(frame.function);
  return absl::StrCat(name.empty() ? "<unnamed>" : name, " (", frame.file, ":",
                      frame.line, ")");
}

bool IsInitialize(const model::FrameText& frame) {
  return frame.python && frame.function == "initialize" &&
         absl::EndsWith(frame.file, "deepspeed/__init__.py");
}

bool IsLoading(Tag tag) {
  return tag == Tag::kShardedWeights || tag == Tag::kConstruction ||
         tag == Tag::kModuleApplyGather || tag == Tag::kCheckpointGather;
}

StackFact Work(const model::Stack& stack,
               const std::vector<model::FrameText>& frames) {
  StackFact fact;
  std::vector<std::string> whole;  // every frame, names in full
  std::vector<std::string> native;
  for (uint32_t index : stack.frames) {
    const model::FrameText& frame = frames[index];
    whole.push_back(Words(frame, true));
    (frame.python ? fact.frames : native).push_back(Words(frame, false));
    if (IsInitialize(frame)) fact.initialize = true;
  }
  if (fact.frames.empty()) fact.frames = std::move(native);
  fact.tag = ClassifyStack(whole);
  fact.phase = PhaseOfStack(whole);
  if (fact.phase == Phase::kInitialize) fact.initialize = true;
  if (fact.initialize) fact.phase = Phase::kInitialize;
  fact.load =
      !fact.initialize && (fact.phase == Phase::kLoad || IsLoading(fact.tag));
  // Modules that run are in the files of modules that are built.
  bool runs = fact.phase == Phase::kForward || fact.phase == Phase::kBackward;
  if (runs && (fact.tag == Tag::kConstruction || fact.tag == Tag::kOther)) {
    fact.tag = Tag::kActivations;
  }
  return fact;
}

}  // namespace

StackFacts::StackFacts(const model::Stacks& stacks,
                       const std::vector<model::FrameText>& frames) {
  facts_.reserve(std::max<size_t>(stacks.stacks.size(), 1));
  for (const model::Stack& stack : stacks.stacks) {
    facts_.push_back(Work(stack, frames));
  }
  if (facts_.empty()) facts_.emplace_back();
}

}  // namespace dstrace::deepspeed
