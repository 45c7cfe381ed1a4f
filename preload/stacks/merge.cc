// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/merge.h"

#include "preload/stacks/eval_ranges.h"

namespace dstrace::stacks {
namespace {

// The merged stack as it grows.
class Merger {
 public:
  Merger(const PyFrame* python, int count, Frame* out, int max) noexcept
      : python_(python), python_count_(count), out_(out), max_(max) {
    if (count > 0) empty_loops_ = python[0].empty_loops;
  }

  int count() const noexcept { return count_; }

  void AddNative(const void* pc) noexcept {
    if (count_ < max_) {
      out_[count_++] = {reinterpret_cast<uintptr_t>(pc), 0,
                        Frame::Kind::kNative};
    }
  }

  // The frames of the next evaluation loop.
  void AddRun() noexcept {
    if (empty_loops_ > 0) {
      --empty_loops_;
      return;
    }
    while (next_ < python_count_) {
      const bool last_of_run = python_[next_].entry;
      AddNextPython();
      if (last_of_run) break;
    }
  }

  void AddRemainingRuns() noexcept {
    while (next_ < python_count_) AddNextPython();
  }

 private:
  void AddNextPython() noexcept {
    const PyFrame& frame = python_[next_++];
    if (count_ < max_) {
      out_[count_++] = {reinterpret_cast<uintptr_t>(frame.code), frame.lasti,
                        Frame::Kind::kPython};
    }
    if (next_ < python_count_) empty_loops_ = python_[next_].empty_loops;
  }

  const PyFrame* python_;
  int python_count_;
  Frame* out_;
  int max_;
  int count_ = 0;
  int next_ = 0;
  int empty_loops_ = 0;
};

// A return address may be the first byte after its function.
uintptr_t CallSite(const void* pc) noexcept {
  return reinterpret_cast<uintptr_t>(pc) - 1;
}

// Where Python frames without a loop of their own go: behind the outermost
// loop, else at the innermost frame of the interpreter, else at the end.
int LeftoverIndex(const InterpreterCode& code, const void* const* pcs,
                  int count) noexcept {
  for (int i = count - 1; i >= 0; --i) {
    if (IsEvaluationLoop(code, CallSite(pcs[i]))) return i;
  }
  for (int i = 0; i < count; ++i) {
    if (code.module.Contains(CallSite(pcs[i]))) return i;
  }
  return count;
}

int CountLoops(const InterpreterCode& code, const void* const* pcs,
               int count) noexcept {
  int loops = 0;
  for (int i = 0; i < count; ++i) {
    const uintptr_t pc = CallSite(pcs[i]);
    if (code.module.Contains(pc) && IsEvaluationLoop(code, pc)) ++loops;
  }
  return loops;
}

int CountRuns(const PyFrame* python, int count) noexcept {
  int runs = 0;
  for (int i = 0; i < count; ++i)
    runs += (python[i].entry ? 1 : 0) + python[i].empty_loops;
  return runs;
}

}  // namespace

int Merge(const void* const* pcs, int native_count, const PyFrame* python,
          int python_count, Frame* out, int max) noexcept {
  Merger merger(python, python_count, out, max);
  const InterpreterCode* code =
      python_count > 0 ? FindInterpreterCode() : nullptr;
  if (code == nullptr) {
    for (int i = 0; i < native_count; ++i) merger.AddNative(pcs[i]);
    merger.AddRemainingRuns();
    return merger.count();
  }
  if (CountLoops(*code, pcs, native_count) < CountRuns(python, python_count)) {
    LearnEvaluationLoops();
  }
  const int leftover = LeftoverIndex(*code, pcs, native_count);
  for (int i = 0; i < native_count; ++i) {
    const uintptr_t pc = CallSite(pcs[i]);
    const bool inside = code->module.Contains(pc);
    if (inside && IsEvaluationLoop(*code, pc)) merger.AddRun();
    if (i == leftover) merger.AddRemainingRuns();
    if (!inside) merger.AddNative(pcs[i]);
  }
  merger.AddRemainingRuns();
  return merger.count();
}

int MergePythonOnly(const void* caller, const PyFrame* python, int python_count,
                    Frame* out, int max) noexcept {
  Merger merger(python, python_count, out, max);
  if (caller != nullptr) merger.AddNative(caller);
  merger.AddRemainingRuns();
  return merger.count();
}

}  // namespace dstrace::stacks
