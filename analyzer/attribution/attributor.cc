// SPDX-License-Identifier: Apache-2.0
#include "analyzer/attribution/attributor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analyzer/attribution/glob.h"

namespace dstrace::attribution {
namespace {

using model::FrameText;

constexpr size_t kNone = static_cast<size_t>(-1);
constexpr size_t kLongestVia = 4;  // functions in a chain

bool Matches(const FramePattern& pattern, const FrameText& frame) {
  const auto any = [](const std::vector<std::string>& patterns,
                      const std::string& text, auto match) {
    return patterns.empty() ||
           std::any_of(patterns.begin(), patterns.end(),
                       [&](const auto& p) { return match(p, text); });
  };
  return any(pattern.functions, frame.function, FunctionMatch) &&
         any(pattern.files, frame.file, FileMatch) &&
         any(pattern.modules, frame.module, GlobMatch);
}

// "Init._convert_to_deepspeed_param.<locals>._allgather_params" -> the last
// name.
std::string_view LastName(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos || dot + 1 == name.size()
             ? name
             : name.substr(dot + 1);
}

// A chain reads best with short names, but "__init__" alone says nothing.
std::string ChainName(const FrameText& frame) {
  const std::string_view name = frame.function;
  if (!frame.python) {  // the last two parts: "MmBackward0::apply"
    const size_t colons = name.rfind("::");
    if (colons == std::string_view::npos || colons == 0) return frame.function;
    const size_t owner = name.rfind("::", colons - 1);
    return std::string(
        owner == std::string_view::npos ? name : name.substr(owner + 2));
  }
  const std::string_view last = LastName(name);
  if (last.size() == name.size()) return frame.function;
  if (!last.starts_with("__") && last != "forward" && last != "step")
    return std::string(last);
  const std::string_view owner =
      LastName(name.substr(0, name.size() - last.size() - 1));
  return absl::StrCat(std::string(owner), ".", std::string(last));
}

}  // namespace

Attributor::Attributor(const model::Stacks& stacks,
                       const std::vector<FrameText>& frames,
                       const RuleSet& rules)
    : stacks_(stacks),
      frames_(frames),
      rules_(rules),
      told_(stacks.stacks.size() + 1) {
  const auto add = [this](const std::vector<FramePattern>& list) {
    for (const FramePattern& pattern : list) patterns_.push_back(&pattern);
    return patterns_.size();
  };
  for (const Rule& rule : rules.rules()) {
    const size_t match = patterns_.size();
    const size_t unless = add(rule.match);
    ranges_.push_back({match, unless, add(rule.unless)});
  }
  const size_t begin = patterns_.size();
  const size_t end = add(rules.plumbing());
  for (size_t i = begin; i < end; ++i) plumbing_.push_back(i);
  matched_.assign(patterns_.size() * frames.size(), -1);
  for (const FrameText& frame : frames) {
    const auto& library = rules.library_files();
    user_.push_back(
        frame.python && !frame.file.empty() &&
        std::none_of(library.begin(), library.end(),
                     [&](const auto& p) { return FileMatch(p, frame.file); }));
  }
}

bool Attributor::MatchFrame(size_t pattern, uint32_t frame) {
  int8_t& known = matched_[pattern * frames_.size() + frame];
  if (known < 0) known = Matches(*patterns_[pattern], frames_[frame]);
  return known != 0;
}

bool Attributor::IsPlumbing(uint32_t frame) {
  return std::any_of(plumbing_.begin(), plumbing_.end(),
                     [&](size_t p) { return MatchFrame(p, frame); });
}

bool Attributor::MatchRule(size_t rule, const model::Stack& stack,
                           Positions* positions) {
  const RuleRange range = ranges_[rule];
  positions->clear();
  size_t pattern = range.match;
  for (size_t i = 0; i < stack.frames.size() && pattern < range.unless; ++i) {
    if (!MatchFrame(pattern, stack.frames[i])) continue;
    positions->push_back(i);
    ++pattern;
  }
  if (pattern < range.unless) return false;
  for (size_t p = range.unless; p < range.end; ++p) {
    for (const uint32_t frame : stack.frames) {
      if (MatchFrame(p, frame)) return false;
    }
  }
  return true;
}

// Priority first, then the match nearest to the allocation, then the one that
// says more, then the order of the rules.
const Rule* Attributor::FindRule(const model::Stack& stack,
                                 Positions* positions) {
  const Rule* best = nullptr;
  Positions found;
  for (size_t r = 0; r < ranges_.size(); ++r) {
    const Rule& rule = rules_.rules()[r];
    if (best != nullptr && rule.priority < best->priority) continue;
    if (!MatchRule(r, stack, &found)) continue;
    const bool wins = best == nullptr || rule.priority > best->priority ||
                      found.front() < positions->front() ||
                      (found.front() == positions->front() &&
                       found.size() > positions->size());
    if (!wins) continue;
    best = &rule;
    *positions = found;
  }
  return best;
}

void Attributor::FindAsker(const model::Stack& stack,
                           const Positions& positions, Story* story) {
  size_t user = kNone;
  size_t python = kNone;
  const size_t outside = story->rule != nullptr && story->rule->blame_outside
                             ? positions.back() + 1
                             : 0;
  for (size_t i = stack.frames.size();
       i-- > 0;) {  // the last one kept is the innermost
    const uint32_t frame = stack.frames[i];
    if (user_[frame] && (i >= outside || user == kNone)) user = i;
    if (frames_[frame].python && (python == kNone || !IsPlumbing(frame)))
      python = i;
  }
  const size_t chosen = user != kNone ? user : python;
  if (chosen != kNone) {
    const FrameText& frame = frames_[stack.frames[chosen]];
    story->asked_by = absl::StrCat(frame.Place(), " in ", frame.function);
    story->asked_file = frame.file;
    story->asked_line = frame.line;
    story->user_code = user != kNone;
  }
  FindVia(stack, positions, chosen, story);
}

// The frames a rule matched say it best. Else: the library function that the
// asking line called, and the last one before the native code.
void Attributor::FindVia(const model::Stack& stack, const Positions& positions,
                         size_t asker, Story* story) {
  std::vector<std::string> chain;
  const auto add = [&](size_t position) {
    const FrameText& frame = frames_[stack.frames[position]];
    if (position == asker || frame.function.empty()) return;
    std::string name = ChainName(frame);
    if (chain.empty() || chain.back() != name) chain.push_back(std::move(name));
  };
  for (auto it = positions.rbegin(); it != positions.rend(); ++it) {
    const FrameText& frame = frames_[stack.frames[*it]];
    if (IsPlumbing(stack.frames[*it])) continue;
    // A library is best named by how it was entered, a function by itself.
    add(frame.python || !story->rule->match[0].functions.empty()
            ? *it
            : EntryOf(stack, *it));
  }
  if (chain.empty() && asker != kNone) {
    size_t outer = kNone;
    size_t inner = kNone;
    for (size_t i = 0; i < asker; ++i) {
      if (!frames_[stack.frames[i]].python || IsPlumbing(stack.frames[i]))
        continue;
      if (inner == kNone) inner = i;
      outer = i;
    }
    if (outer != kNone) add(outer);
    if (inner != kNone) add(inner);
  }
  if (chain.size() > kLongestVia)
    chain.erase(chain.begin() + 1, chain.end() - (kLongestVia - 1));
  story->via = absl::StrJoin(chain, " -> ");
}

Story Attributor::Work(const model::Stack& stack) {
  Story story;
  if (stack.frames.empty()) {
    story.asked_by = "(no stack was taken)";
    return story;
  }
  Positions positions;
  story.rule = FindRule(stack, &positions);
  FindAsker(stack, positions, &story);
  if (!story.asked_by.empty()) return story;
  NativeAsker(stack, positions, &story);
  return story;
}

// No Python at all. With a rule: where its library was entered. Without: the
// innermost function past the CUDA libraries.
void Attributor::NativeAsker(const model::Stack& stack,
                             const Positions& positions, Story* story) {
  if (story->rule != nullptr && !story->rule->asker.empty()) {
    story->asked_by = story->rule->asker;
    return;
  }
  size_t at = positions.empty() ? 0 : EntryOf(stack, positions.back());
  if (positions.empty()) {
    for (size_t i = 0; i < stack.frames.size(); ++i) {
      const FrameText& frame = frames_[stack.frames[i]];
      if (frame.module.starts_with("libcud") ||
          frame.module.starts_with("libdstrace") || frame.function.empty()) {
        continue;
      }
      at = i;
      break;
    }
  }
  story->asked_by = frames_[stack.frames[at]].Label();
}

// The outermost named frame of the run of native frames of one library that
// `position` is in: how the library was entered.
size_t Attributor::EntryOf(const model::Stack& stack, size_t position) const {
  const std::string& module = frames_[stack.frames[position]].module;
  size_t entry = position;
  for (size_t i = position; i < stack.frames.size(); ++i) {
    const FrameText& frame = frames_[stack.frames[i]];
    if (frame.python || frame.module != module) break;
    if (!frame.function.empty()) entry = i;
  }
  return entry;
}

const Story& Attributor::Tell(model::StackId id) {
  const size_t index = id < stacks_.stacks.size() ? id : 0;
  std::vector<Story>& slot = told_[index];
  if (slot.empty()) {
    slot.push_back(index < stacks_.stacks.size() ? Work(stacks_.stacks[index])
                                                 : Work({}));
  }
  return slot.front();
}

}  // namespace dstrace::attribution
