// SPDX-License-Identifier: Apache-2.0
//
// Ways for a process to end, and to make others. Allocates three blocks first.
//
// usage: e2e_life MODE

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

extern "C" {
int cudaMalloc(void** pointer, size_t size);
}

namespace {

void Allocate(int count) {
  for (int i = 0; i < count; ++i) {
    void* pointer = nullptr;
    if (cudaMalloc(&pointer, 512) != 0) _exit(92);
  }
}

std::string g_name;

char g_true[] = "/bin/true";
char g_self[] = "/proc/self/exe";
char g_mode[] = "return";
char* g_true_argv[] = {g_true, nullptr};
char* g_self_argv[] = {g_self, g_mode, nullptr};

int WaitFor(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return 94;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int Exec(const std::string& how) {
  if (how == "execve") return execve(g_true, g_true_argv, environ);
  if (how == "execv") return execv(g_true, g_true_argv);
  if (how == "execvp") return execvp("true", g_true_argv);
  if (how == "execvpe") return execvpe("true", g_true_argv, environ);
  if (how == "fexecve") {
    return fexecve(open(g_true, O_RDONLY), g_true_argv, environ);
  }
  // Which arguments and environment arrive is the shell's exit status.
  const char* const script = "test $# = 3 && exit ${LIFE-4}";
  if (how == "execl") {
    return execl("/bin/sh", "sh", "-c", script, "0", "1", "2", "3", nullptr);
  }
  if (how == "execlp") {
    return execlp("sh", "sh", "-c", script, "0", "1", "2", "3", nullptr);
  }
  if (how == "execle") {
    static const char* const env[] = {"LIFE=9", nullptr};
    return execle("/bin/sh", "sh", "-c", script, "0", "1", "2", "3", nullptr,
                  env);
  }
  const int result = execl("/no/such/program", "x", nullptr);
  if (result != -1 || errno != ENOENT) return 96;
  if (how == "failed-exec-kill") raise(SIGKILL);
  return 7;
}

// The child of a vfork() or a spawn is another program; it allocates too.
int Children(const std::string& how) {
  if (how == "vfork") {
    const pid_t child = vfork();
    if (child == 0) {
      execve(g_self, g_self_argv, environ);
      _exit(1);
    }
    return WaitFor(child);
  }
  if (how == "spawn") {
    pid_t child = 0;
    if (posix_spawn(&child, g_self, nullptr, nullptr, g_self_argv, environ)) {
      return 95;
    }
    return WaitFor(child);
  }
  const int status = system((g_name + " return").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
}

// Twice forked, in a session of its own; the parent goes at once.
int Daemonise() {
  const pid_t first = fork();
  if (first != 0) return WaitFor(first);
  setsid();
  if (fork() != 0) _exit(0);
  if (chdir("/") != 0) _exit(98);
  close(STDIN_FILENO);
  Allocate(5);
  exit(0);
}

int ForkAndDie(int number) {
  const pid_t child = fork();
  if (child == 0) {
    Allocate(5);
    raise(number);
  }
  return WaitFor(child);
}

struct Leave {
  ~Leave() { raise(SIGSEGV); }
};

int Die(const std::string& how) {
  if (how == "exit") exit(6);
  if (how == "_exit") _exit(5);
  if (how == "_Exit") _Exit(5);
  if (how == "quick_exit") quick_exit(5);
  if (how == "abort") abort();
  if (how == "terminate") std::terminate();
  if (how == "segv") *reinterpret_cast<volatile int*>(8) = 1;
  if (how == "kill") raise(SIGKILL);
  if (how == "term") raise(SIGTERM);
  if (how == "segv-at-exit") {
    static Leave leave;
    return 0;
  }
  return 99;
}

// A program that has handlers of its own finds them as it left them.
int Handlers() {
  struct sigaction action = {};
  for (int number = 1; number < SIGRTMAX; ++number) {
    if (sigaction(number, nullptr, &action) != 0) continue;
    if (action.sa_handler != SIG_DFL) return number;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  g_name = argv[0];
  const std::string how = argv[1];
  if (how == "fork-before") {
    // Nothing was recorded before the fork.
    const pid_t child = fork();
    if (child == 0) {
      Allocate(5);
      exit(0);
    }
    const int status = WaitFor(child);
    Allocate(3);
    return status;
  }
  Allocate(3);
  if (how == "return") return 3;
  if (how == "handlers") return Handlers();
  if (how == "daemonise") return Daemonise();
  if (how == "child-kill") return ForkAndDie(SIGKILL);
  if (how == "child-segv") return ForkAndDie(SIGSEGV);
  if (how.find("exec") != std::string::npos) return Exec(how);
  if (how == "vfork" || how == "spawn" || how == "system") return Children(how);
  return Die(how);
}
