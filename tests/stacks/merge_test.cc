// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/merge.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/stacks/fake_interpreter.h"

namespace dstrace::stacks {
namespace {

constexpr uintptr_t kLoop = FakeInterpreter::kLoop + 16;
constexpr uintptr_t kCold = FakeInterpreter::kColdLoop + 16;
constexpr uintptr_t kPlumbing = FakeInterpreter::kPlumbing;
constexpr uintptr_t kTorch = 0x9000;
constexpr uintptr_t kLibc = 0xa000;

// Python frames are named by single letters: their code address.
PyFrame Python(char name, bool entry, uint8_t empty_loops = 0) {
  return {reinterpret_cast<const void*>(static_cast<uintptr_t>(name)), 0, entry,
          empty_loops};
}

// "T" and "C" for torch and libc frames, the letter of a Python frame.
std::string Merged(const std::vector<uintptr_t>& native,
                   const std::vector<PyFrame>& python, int max = 64) {
  std::vector<const void*> pcs;
  for (uintptr_t pc : native) pcs.push_back(reinterpret_cast<const void*>(pc));
  std::vector<Frame> frames(static_cast<size_t>(max));
  const int count =
      Merge(pcs.data(), static_cast<int>(pcs.size()), python.data(),
            static_cast<int>(python.size()), frames.data(), max);
  std::string text;
  for (int i = 0; i < count; ++i) {
    const Frame& frame = frames[static_cast<size_t>(i)];
    if (frame.kind == Frame::Kind::kPython) {
      text += static_cast<char>(frame.pc_or_code);
    } else {
      text += frame.pc_or_code == kTorch  ? 'T'
              : frame.pc_or_code == kLibc ? 'C'
                                          : 'I';
    }
  }
  return text;
}

class MergeTest : public ::testing::Test {
 protected:
  void SetUp() override { g_fake_interpreter = FakeInterpreter{}; }
};

TEST_F(MergeTest, PutsEachRunInThePlaceOfItsEvaluationLoop) {
  EXPECT_EQ(Merged({kTorch, kPlumbing, kLoop, kPlumbing, kTorch, kPlumbing,
                    kLoop, kPlumbing, kLibc},
                   {Python('a', false), Python('b', true), Python('c', false),
                    Python('d', true)}),
            "TabTcdC");
}

TEST_F(MergeTest, DropsTheInterpretersOwnFramesAndKeepsOthers) {
  EXPECT_EQ(Merged({kPlumbing, kTorch, kPlumbing, kTorch, kLoop, kTorch},
                   {Python('a', true)}),
            "TTaT");
}

TEST_F(MergeTest, KnowsThePartsThatTheCompilerSplitOff) {
  EXPECT_EQ(Merged({kTorch, kCold, kTorch, kLoop},
                   {Python('a', true), Python('b', true)}),
            "TaTb");
  EXPECT_EQ(g_fake_interpreter.lessons, 0);
}

TEST_F(MergeTest, LearnsPartsWithoutSymbolsWhenLoopsAreMissing) {
  g_fake_interpreter.knows_cold_part = false;
  g_fake_interpreter.can_learn = true;

  EXPECT_EQ(Merged({kTorch, kCold, kTorch, kLoop},
                   {Python('a', true), Python('b', true)}),
            "TaTb");
  EXPECT_EQ(g_fake_interpreter.lessons, 1);
}

TEST_F(MergeTest, LosesNoPythonFrameWhenALoopIsUnknown) {
  g_fake_interpreter.knows_cold_part = false;

  EXPECT_EQ(Merged({kTorch, kCold, kTorch, kLoop, kLibc},
                   {Python('a', true), Python('b', true)}),
            "TTabC");
}

TEST_F(MergeTest, AppendsPythonFramesWhenTheNativeStackEndsEarly) {
  EXPECT_EQ(Merged({kTorch}, {Python('a', true), Python('b', true)}), "Tab");
  EXPECT_EQ(Merged({}, {Python('a', true)}), "a");
}

TEST_F(MergeTest, PutsPythonFramesAtTheInterpreterWhenNoLoopIsKnown) {
  EXPECT_EQ(Merged({kTorch, kPlumbing, kPlumbing, kLibc},
                   {Python('a', true), Python('b', true)}),
            "TabC");
}

TEST_F(MergeTest, LeavesALoopThatRunsNothingWithoutFrames) {
  // The innermost loop's function is being torn down: its frame is gone.
  EXPECT_EQ(
      Merged({kTorch, kLoop, kTorch, kLoop, kLibc}, {Python('a', true, 1)}),
      "TTaC");
  EXPECT_EQ(Merged({kTorch, kLoop, kTorch, kLoop, kTorch, kLoop},
                   {Python('a', true), Python('b', true, 1)}),
            "TaTTb");
}

TEST_F(MergeTest, GivesNoFramesToLoopsBeyondATruncatedPythonStack) {
  EXPECT_EQ(Merged({kTorch, kLoop, kTorch, kLoop, kLibc}, {Python('a', false)}),
            "TaTC");
}

TEST_F(MergeTest, KeepsNativeStacksOfThreadsWithoutPythonWhole) {
  EXPECT_EQ(Merged({kTorch, kPlumbing, kLoop, kLibc}, {}), "TIIC");
}

TEST_F(MergeTest, WithoutAnInterpreterReturnsTheNativeStack) {
  g_fake_interpreter.present = false;

  EXPECT_EQ(Merged({kTorch, kLibc}, {}), "TC");
}

TEST_F(MergeTest, StopsAtTheLimitAndKeepsTheInnermostFrames) {
  EXPECT_EQ(Merged({kTorch, kLoop, kTorch, kLoop},
                   {Python('a', true), Python('b', true)}, 3),
            "TaT");
  EXPECT_EQ(Merged({kTorch, kLoop}, {Python('a', true)}, 1), "T");
}

TEST_F(MergeTest, PythonOnlyStacksStartAtTheCaller) {
  const PyFrame python[] = {Python('a', false), Python('b', true)};
  Frame frames[3];

  ASSERT_EQ(MergePythonOnly(reinterpret_cast<const void*>(kTorch), python, 2,
                            frames, 3),
            3);
  EXPECT_EQ(frames[0].pc_or_code, kTorch);
  EXPECT_EQ(frames[0].kind, Frame::Kind::kNative);
  EXPECT_EQ(frames[2].pc_or_code, static_cast<uintptr_t>('b'));
  EXPECT_EQ(MergePythonOnly(nullptr, python, 2, frames, 3), 2);
}

}  // namespace
}  // namespace dstrace::stacks
