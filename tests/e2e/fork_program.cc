// SPDX-License-Identifier: Apache-2.0
//
// Forks while another thread is inside the preload's unwinder. The unwinder
// asks dl_iterate_phdr where code lies, with its lock held: the one below
// stands in front of libc's and keeps that thread there.
//
// usage: e2e_fork held | leaving
//   held     the thread stays inside until the child is done
//   leaving  it goes on once fork() has begun

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <semaphore>
#include <thread>

extern "C" {
int cudaMalloc(void** pointer, size_t size);
int cudaFree(void* pointer);
}

namespace {

thread_local bool t_stop_here = false;
std::binary_semaphore g_is_inside{0};
std::binary_semaphore g_go_on{0};

using Callback = int (*)(dl_phdr_info*, size_t, void*);

}  // namespace

extern "C" __attribute__((visibility("default"))) int dl_iterate_phdr(
    Callback callback, void* argument) {
  static const auto real = reinterpret_cast<int (*)(Callback, void*)>(
      dlsym(RTLD_NEXT, "dl_iterate_phdr"));
  if (t_stop_here) {
    t_stop_here = false;
    g_is_inside.release();
    g_go_on.acquire();
  }
  return real(callback, argument);
}

namespace {

constexpr size_t kKnownSize = 512;
constexpr size_t kHeldSize = 1024;
constexpr size_t kChildSize = 1536;

// Code that the unwinder has not met yet.
__attribute__((noinline)) int NewToTheUnwinder(void** pointer) {
  const int result = cudaMalloc(pointer, kHeldSize);
  asm volatile("" ::: "memory");
  return result;
}

void Pair(size_t size) {
  void* pointer = nullptr;
  if (cudaMalloc(&pointer, size) != 0 || cudaFree(pointer) != 0) _exit(92);
}

void Hold() {
  Pair(kKnownSize);  // everything but the unwinding is known to this thread
  void* pointer = nullptr;
  t_stop_here = true;
  if (NewToTheUnwinder(&pointer) != 0) _exit(93);
  if (t_stop_here) _exit(94);  // nobody asked: this test shows nothing
  cudaFree(pointer);
}

// Found by name in the child's stack.
extern "C" __attribute__((noinline, visibility("default"))) int e2e_in_child() {
  // The unwinder's lock is taken with signals blocked: only this ends a child
  // that waits for it, with its parent.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int i = 0; i < 5; ++i) Pair(kChildSize);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const bool leaving = strcmp(argv[1], "leaving") == 0;
  alarm(30);  // instead of hanging
  Pair(kKnownSize);
  std::thread holder(Hold);
  g_is_inside.acquire();
  // Handlers that come before fork() run in the reverse of their order: this
  // one before the preload's.
  if (leaving) pthread_atfork([] { g_go_on.release(); }, nullptr, nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(e2e_in_child());
  int status = 0;
  if (waitpid(child, &status, 0) != child) return 95;
  if (!leaving) g_go_on.release();
  holder.join();
  Pair(kKnownSize);
  printf("%d\n", status);
  return 0;
}
