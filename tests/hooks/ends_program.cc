// SPDX-License-Identifier: Apache-2.0
//
// Ends in the way its first argument names. See process_test.cc.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

char g_true[] = "/bin/true";
char* g_argv[] = {g_true, nullptr};

int Wait(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

int Exec(const std::string& how) {
  if (how == "execve") return execve(g_true, g_argv, environ);
  if (how == "execv") return execv(g_true, g_argv);
  if (how == "execvp") return execvp("true", g_argv);
  if (how == "execvpe") return execvpe("true", g_argv, environ);
  if (how == "fexecve") {
    return fexecve(open(g_true, O_RDONLY), g_argv, environ);
  }
  if (how == "execveat") {
    return execveat(AT_FDCWD, g_true, g_argv, environ, 0);
  }
  if (how == "execl") return execl(g_true, "true", "1", nullptr);
  if (how == "execlp") return execlp("true", "true", nullptr);
  if (how == "execle") return execle(g_true, "true", nullptr, environ);
  if (how == "execve_fails") {
    const int result = execve("/no/such/file", g_argv, environ);
    return result == -1 && errno == ENOENT ? 7 : 8;
  }
  return 99;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 98;
  const std::string how = argv[1];
  if (how == "return") return 3;
  if (how == "_exit") _exit(3);
  if (how == "_Exit") _Exit(3);
  if (how == "quick_exit") quick_exit(3);
  if (how == "abort") abort();
  if (how == "vfork_exec") {
    const pid_t child = vfork();
    if (child == 0) {
      execve(g_true, g_argv, environ);
      _exit(1);
    }
    return Wait(child);
  }
  if (how == "vfork_exit") {
    const pid_t child = vfork();
    if (child == 0) _exit(5);
    return Wait(child);
  }
  return Exec(how);
}
