// SPDX-License-Identifier: Apache-2.0
//
// Ends of a process: what is told to the recorder, and that they stay what
// they were.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace {

struct Outcome {
  int exit_status = -1;
  int signal = 0;
  std::string log;  // "end <kind> <status>" per line
};

Outcome RunProgram(const std::string& how) {
  const std::string path = ::testing::TempDir() + "ends." + how;
  unlink(path.c_str());
  const pid_t child = fork();
  if (child == 0) {
    setenv("FAKE_RECORDER_LOG", path.c_str(), 1);
    execl(ENDS_PROGRAM, ENDS_PROGRAM, how.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Outcome outcome;
  if (WIFEXITED(status)) outcome.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  outcome.log = text.str();
  unlink(path.c_str());
  return outcome;
}

TEST(ProcessEnd, AReturnFromMainIsNotAFastExit) {
  const Outcome outcome = RunProgram("return");
  EXPECT_EQ(outcome.exit_status, 3);
  EXPECT_EQ(outcome.log, "");
}

TEST(ProcessEnd, FastExitsAreRecordedWithTheirStatus) {
  for (const char* how : {"_exit", "_Exit", "quick_exit"}) {
    const Outcome outcome = RunProgram(how);
    EXPECT_EQ(outcome.exit_status, 3) << how;
    EXPECT_EQ(outcome.log, "end 2 3\n") << how;
  }
}

TEST(ProcessEnd, AnAbortIsRecordedAndStillASignal) {
  const Outcome outcome = RunProgram("abort");
  EXPECT_EQ(outcome.signal, SIGABRT);
  EXPECT_EQ(outcome.log, "end 5 6\n");
}

TEST(ProcessEnd, ExecIsRecordedAndHappens) {
  for (const char* how : {"execve", "execv", "execvp", "execvpe", "fexecve",
                          "execveat", "execl", "execlp", "execle"}) {
    const Outcome outcome = RunProgram(how);
    EXPECT_EQ(outcome.exit_status, 0) << how;
    EXPECT_EQ(outcome.log, "end 4 0\n") << how;
  }
}

TEST(ProcessEnd, AFailedExecReturnsItsErrorAndTakesItsEndBack) {
  const Outcome outcome = RunProgram("execve_fails");
  EXPECT_EQ(outcome.exit_status, 7);
  EXPECT_EQ(outcome.log, "end 4 0\nend 0 0\n");
}

// A child of vfork() runs in its parent's memory: its end is not the parent's.
TEST(ProcessEnd, AVforkChildsEndIsNotItsParents) {
  const Outcome exec = RunProgram("vfork_exec");
  EXPECT_EQ(exec.exit_status, 0);
  EXPECT_EQ(exec.log, "");
  const Outcome exit = RunProgram("vfork_exit");
  EXPECT_EQ(exit.exit_status, 5);
  EXPECT_EQ(exit.log, "");
}

}  // namespace
