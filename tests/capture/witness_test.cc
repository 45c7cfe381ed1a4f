// SPDX-License-Identifier: Apache-2.0
//
// Drives randomised call trees through CaptureStack and compares each answer
// with a fresh unwind: one id for one stack, one stack for one id, always.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <latch>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "preload/capture/session.h"
#include "preload/runtime/config.h"
#include "preload/stacks/native.h"
#include "preload/stacks/stack_witness.h"
#include "tests/capture/call_tree.h"

extern "C" {
int tree_step_omit(const dstrace::tests::TreeWalk& walk, size_t at);
int tree_step_keep(const dstrace::tests::TreeWalk& walk, size_t at);
int tree_shift_omit(const dstrace::tests::TreeWalk& walk,
                    const dstrace::tests::TreeShift& shift);
int tree_shift_keep(const dstrace::tests::TreeWalk& walk,
                    const dstrace::tests::TreeShift& shift);
void tree_signal_omit(int number);
void tree_signal_keep(int number);
}

namespace dstrace::capture {
namespace {

using tests::TreeWalk;
using Stack = std::vector<void*>;
using Program = std::vector<uint8_t>;

constexpr int kMost = ThreadState::kMaxNative;

// What every event of the process said.
struct Ledger {
  std::mutex mutex;
  std::map<Stack, uint32_t> id_of;
  std::map<uint32_t, Stack> stack_of;
  int events = 0;
  int wrong = 0;

  void Check(uint32_t id, const Stack& stack) {
    const std::lock_guard lock(mutex);
    ++events;
    const auto [by_stack, new_stack] = id_of.emplace(stack, id);
    const auto [by_id, new_id] = stack_of.emplace(id, stack);
    if (id == 0 || by_stack->second != id || by_id->second != stack) ++wrong;
  }
};

Ledger& TheLedger() {
  static Ledger& ledger = *new Ledger;
  return ledger;
}

ThreadState& State() {
  ThreadState* const state = Session::Get().Enter();
  EXPECT_NE(state, nullptr);
  return *state;
}

// One event. The frames of this program that come first are left out of both.
void Event(void*) {
  ThreadState& state = State();
  const uint32_t id =
      Session::Get().Stack(state, runtime::StackMode::kFull, nullptr);
  Stack fresh(kMost);
  const int count = stacks::CaptureNative(fresh.data(), kMost);
  fresh.resize(static_cast<size_t>(count));
  TheLedger().Check(id, fresh);
}

int Drive(const Program& program) {
  const TreeWalk walk = {program.data(),
                         program.size(),
                         {&tree_step_omit, &tree_step_keep},
                         &Event,
                         nullptr};
  return tree_step_omit(walk, 0);
}

Program RandomProgram(std::mt19937& random, size_t longest) {
  Program program(1 + random() % longest);
  for (uint8_t& byte : program) byte = static_cast<uint8_t>(random());
  return program;
}

// Programs that repeat, each now and then with one byte changed: stacks that
// share almost everything.
void DriveMany(uint32_t seed, int events, size_t longest) {
  std::mt19937 random(seed);
  std::vector<Program> programs;
  for (int i = 0; i < 40; ++i) {
    programs.push_back(RandomProgram(random, longest));
  }
  for (int i = 0; i < events; ++i) {
    Program program = programs[random() % programs.size()];
    if (random() % 4 == 0) {
      program[random() % program.size()] ^=
          static_cast<uint8_t>(1u << random() % 8);
    }
    Drive(program);
  }
}

class WitnessTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    struct sigaction action = {};
    action.sa_handler = &tree_signal_omit;
    action.sa_flags = SA_NODEFER | SA_ONSTACK;
    sigaction(SIGUSR1, &action, nullptr);
    action.sa_handler = &tree_signal_keep;
    sigaction(SIGUSR2, &action, nullptr);
    stacks::WarmUp();
  }
  void SetUp() override {
    before_ = TheLedger().events;
    // As a thread's first event finds it.
    std::memset(static_cast<void*>(&State().witnessed), 0,
                sizeof State().witnessed);
  }

  void ExpectAllRight(int at_least) {
    EXPECT_GE(TheLedger().events - before_, at_least);
    EXPECT_EQ(TheLedger().wrong, 0);
  }
  int before_ = 0;
};

TEST_F(WitnessTest, AnswersAsAFreshUnwindWouldInEveryCallTree) {
  constexpr int kEvents = 6000;
  const uint64_t hits = State().witnessed.hits();

  DriveMany(1, kEvents, 12);

  ExpectAllRight(kEvents);
  EXPECT_GT(State().witnessed.hits() - hits, kEvents / 3);
}

TEST_F(WitnessTest, AnswersAsAFreshUnwindWouldOnDeepStacks) {
  constexpr int kEvents = 1500;
  const uint64_t hits = State().witnessed.hits();

  DriveMany(2, kEvents, 24);

  ExpectAllRight(kEvents);
  EXPECT_GT(State().witnessed.hits() - hits, kEvents / 10);
}

TEST_F(WitnessTest, HitsOnEveryRepetitionOfAStack) {
  constexpr uint64_t kRepetitions = 1000;
  std::mt19937 random(3);
  for (uint8_t kind = 0; kind < tests::kTreeKinds; ++kind) {
    if (kind == 6) continue;  // may be a signal: never a hit
    const Program program(10, static_cast<uint8_t>(kind + 0x80 * (kind & 1)));
    const uint64_t hits = State().witnessed.hits();
    for (uint64_t i = 0; i < kRepetitions; ++i) Drive(program);
    EXPECT_EQ(State().witnessed.hits() - hits, kRepetitions - 2)
        << "kind " << int{kind};
  }
  ExpectAllRight(tests::kTreeKinds - 1);
}

TEST_F(WitnessTest, TellsCallSitesApartThatShareAStackPointer) {
  constexpr int kEvents = 4000;
  std::mt19937 random(4);
  const uint64_t hits = State().witnessed.hits();

  // Two sites each, six levels deep: 64 stacks at one stack pointer.
  for (int i = 0; i < kEvents; ++i) {
    Program program(6);
    for (uint8_t& byte : program) {
      byte = static_cast<uint8_t>(7 | (random() & 0x40));
    }
    Drive(program);
  }

  ExpectAllRight(kEvents);
  EXPECT_GT(State().witnessed.hits() - hits, kEvents / 2);
}

using TreeShiftCall = int (*)(const TreeWalk&, const tests::TreeShift&);

// One call site for all.
[[gnu::noinline]] void DriveShifted(TreeShiftCall call,
                                    const tests::TreeShift& shift) {
  const TreeWalk walk = {nullptr, 0, {nullptr, nullptr}, &Event, nullptr};
  call(walk, shift);
  asm volatile("");
}

// Every return address of the first stack still stands where it was, but the
// second stack's own ones are elsewhere. Only the frame pointer, or the word
// that a realigned frame is found by, tells.
TEST_F(WitnessTest, IsNotFooledByReturnAddressesLeftInPlace) {
  for (const TreeShiftCall call : {&tree_shift_omit, &tree_shift_keep}) {
    for (size_t shift = 16; shift <= 112; shift += 16) {
      for (const bool realigned : {false, true}) {
        const uint64_t hits = State().witnessed.hits();
        for (int i = 0; i < 6; ++i) {
          const volatile bool second = i == 4;
          DriveShifted(call, {.caller = second ? 0 : shift,
                              .callee = second && !realigned ? shift : 0,
                              .second_site = second,
                              .realigned = realigned});
        }
        EXPECT_GE(State().witnessed.hits(), hits + 3);
      }
    }
  }
  ExpectAllRight(2 * 7 * 2 * 6);
}

TEST_F(WitnessTest, AnswersRightInThreadsThatReplaceEachOther) {
  constexpr int kThreads = 4;
  constexpr int kGenerations = 6;
  constexpr int kEvents = 150;
  for (int generation = 0; generation < kGenerations; ++generation) {
    std::latch start(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&start, t] {
        start.arrive_and_wait();
        DriveMany(static_cast<uint32_t>(100 + t), kEvents, 10);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ExpectAllRight(kThreads * kGenerations * kEvents);
}

TEST_F(WitnessTest, AnswersRightOnAnAlternateSignalStack) {
  static char stack[256 << 10];
  const stack_t alternate = {
      .ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  stack_t before = {};
  ASSERT_EQ(sigaltstack(&alternate, &before), 0);

  DriveMany(5, 600, 8);
  for (int i = 0; i < 50; ++i) Drive({6, 7, 0x47, 0});

  ExpectAllRight(650);
  sigaltstack(&before, nullptr);
}

ucontext_t g_main, g_fiber;
uint32_t g_fiber_seed;

void FiberBody() { DriveMany(g_fiber_seed, 60, 6); }

// Stacks that come and go at one address, longer and shorter: a place that was
// the stack's is no memory any more while the inner frames look the same.
TEST_F(WitnessTest, AnswersRightOnFibersWhoseStacksAreReplaced) {
  constexpr size_t kLongest = 512 << 10;
  constexpr int kRounds = 30;
  char* const base = static_cast<char*>(mmap(
      nullptr, 2 * kLongest, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(base, MAP_FAILED);
  for (int round = 0; round < kRounds; ++round) {
    const size_t size = round % 2 == 0 ? kLongest : kLongest / 2;
    ASSERT_EQ(mprotect(base, size, PROT_READ | PROT_WRITE), 0);
    getcontext(&g_fiber);
    g_fiber.uc_stack.ss_sp = base;
    g_fiber.uc_stack.ss_size = size;
    g_fiber.uc_link = &g_main;
    g_fiber_seed = static_cast<uint32_t>(200 + round % 3);
    makecontext(&g_fiber, &FiberBody, 0);
    swapcontext(&g_main, &g_fiber);
    mmap(base, 2 * kLongest, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
         -1, 0);
  }
  ExpectAllRight(kRounds * 60);
  munmap(base, 2 * kLongest);
}

TEST_F(WitnessTest, ForgetsWhatItSawBeforeModulesChanged) {
  for (int round = 0; round < 3; ++round) {
    const uint64_t hits = State().witnessed.hits();
    for (int i = 0; i < 10; ++i) Drive({7, 7, 7});
    EXPECT_EQ(State().witnessed.hits(), hits + 8) << "round " << round;
    // From here on every stack has a new id.
    Session::Get().ModulesChanged();
    TheLedger().id_of.clear();
    TheLedger().stack_of.clear();
  }
  ExpectAllRight(30);
}

[[gnu::noinline]] bool Witness(Stack* pcs, stacks::StackWitness* witness) {
  pcs->resize(kMost);
  const int count = stacks::CaptureNative(pcs->data(), kMost);
  pcs->resize(static_cast<size_t>(count));
  const bool recorded = stacks::RecordWitness(__builtin_frame_address(0),
                                              pcs->data(), count, witness);
  uint64_t found = 0;
  return recorded && stacks::FirstMismatch(
                         __builtin_frame_address(0), witness->offsets,
                         witness->words, static_cast<uint32_t>(witness->count),
                         &found) == static_cast<uint32_t>(witness->count);
}

TEST_F(WitnessTest, HoldsEveryReturnAddressOfTheStack) {
  Stack pcs;
  stacks::StackWitness witness;
  ASSERT_TRUE(Witness(&pcs, &witness));
  size_t next = 0;
  for (int i = 0; i < witness.count && next < pcs.size(); ++i) {
    if (witness.words[i] == reinterpret_cast<uintptr_t>(pcs[next])) ++next;
  }
  EXPECT_EQ(next, pcs.size());
}

TEST_F(WitnessTest, RefusesAStackThatTheUnwinderSawOtherwise) {
  const void* const frame = __builtin_frame_address(0);
  Stack pcs(kMost);
  const int count = stacks::CaptureNative(pcs.data(), kMost);
  stacks::StackWitness witness;
  ASSERT_TRUE(stacks::RecordWitness(frame, pcs.data(), count, &witness));

  pcs[0] = &pcs;

  EXPECT_FALSE(stacks::RecordWitness(frame, pcs.data(), count, &witness));
  EXPECT_FALSE(stacks::RecordWitness(frame, pcs.data(), 0, &witness));
}

// Frames that never have the same size twice: each event is at another place.
[[gnu::noinline]] void Shifted(size_t bytes) {
  auto* const memory = static_cast<volatile char*>(alloca(bytes));
  memory[0] = 1;
  Drive({7, 7});
  memory[bytes - 1] = 1;
}

TEST_F(WitnessTest, SpendsLittleOnStacksThatNeverComeBack) {
  constexpr int kEvents = 8000;
  for (int i = 0; i < kEvents; ++i) Shifted(16 * static_cast<size_t>(1 + i));

  // The stock, one for a thousand misses and one for 128 hits: an address
  // sanitizer pads some of the frames to one size.
  const uint64_t hits = State().witnessed.hits();
  EXPECT_LT(hits, kEvents / 16u);
  EXPECT_GE(State().witnessed.made(), 256u);
  EXPECT_LE(State().witnessed.made(), 256 + kEvents / 1000 + hits / 128);
  ExpectAllRight(kEvents);
}

}  // namespace
}  // namespace dstrace::capture

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  char folder[] = "/tmp/dstrace_witness_XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  setenv("DSTRACE_OUTPUT", (std::string(folder) + "/run.pb").c_str(), 1);
  dstrace::runtime::ReadConfig();
  const int status = RUN_ALL_TESTS();
  std::filesystem::remove_all(folder);
  return status;
}
