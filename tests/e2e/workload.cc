// SPDX-License-Identifier: Apache-2.0
//
// The C++ programs of the end-to-end tests: one way to live and die each. They
// know CUDA's runtime API and nothing of dstrace.
//
// usage: e2e_workload MODE [COUNT] [THREADS]
//
// With E2E_ACK=FILE every thread counts its finished calls in its own uint64 of
// that file, which is mapped: the count outlives SIGKILL, and what it counts
// was acknowledged before. The i-th allocation of a thread has SizeOf(i) bytes.

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <string_view>
#include <thread>
#include <vector>

extern "C" {
int cudaMalloc(void** pointer, size_t size);
int cudaFree(void* pointer);
}

// Found by name in the native stack.
extern "C" {
__attribute__((noinline, visibility("default"))) int e2e_inner(size_t size) {
  void* pointer = nullptr;
  const int result = cudaMalloc(&pointer, size);
  return result + (pointer == nullptr);
}
__attribute__((noinline, visibility("default"))) int e2e_outer(size_t size) {
  return e2e_inner(size) * 2;
}
}

namespace {

constexpr int kMaxThreads = 512;
std::atomic<uint64_t>* g_ack = nullptr;

size_t SizeOf(uint64_t i) { return 512 * (i % 1000 + 1); }

void OpenAck() {
  const char* path = getenv("E2E_ACK");
  if (path == nullptr) return;
  const size_t bytes = kMaxThreads * sizeof(uint64_t);
  const int fd = open(path, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, bytes) != 0) _exit(90);
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) _exit(91);
  close(fd);
  g_ack = static_cast<std::atomic<uint64_t>*>(map);
}

// Plain stores survive SIGKILL: the page belongs to the kernel. Only one
// thread writes each slot.
void Acknowledge(int thread) {
  if (g_ack != nullptr) {
    g_ack[thread].fetch_add(1, std::memory_order_relaxed);
  }
}

void* Allocate(uint64_t i, int thread) {
  void* pointer = nullptr;
  if (cudaMalloc(&pointer, SizeOf(i)) != 0 || pointer == nullptr) _exit(92);
  Acknowledge(thread);
  return pointer;
}

void Free(void* pointer, int thread) {
  if (cudaFree(pointer) != 0) _exit(93);
  Acknowledge(thread);
}

// COUNT pairs, then one allocation that stays.
void Pairs(uint64_t count, int thread) {
  for (uint64_t i = 0; i < count; ++i) Free(Allocate(i, thread), thread);
}

// All threads make their first call at the same instant.
void Threads(uint64_t count, int threads) {
  std::vector<std::thread> all;
  std::latch start(threads);
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([=, &start] {
      start.arrive_and_wait();
      Pairs(count, t % kMaxThreads);
    });
  }
  for (std::thread& thread : all) thread.join();
}

// COUNT threads one after another, one pair each.
void ShortThreads(uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    std::thread([=] { Free(Allocate(i, 0), 0); }).join();
  }
}

int WaitFor(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return 94;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The parent allocates before, the child and then the parent after it.
int Fork(uint64_t count) {
  Pairs(count, 0);
  const pid_t child = fork();
  if (child == 0) {
    Pairs(count / 2, 1);
    exit(3);
  }
  const int status = WaitFor(child);
  Pairs(count, 0);
  return status == 3 ? 0 : status;
}

// A child that touches no CUDA must leave nothing.
int ForkIdle(uint64_t count) {
  Pairs(count, 0);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  const int status = WaitFor(child);
  Pairs(count, 0);
  return status;
}

int Exec(uint64_t count) {
  Pairs(count, 0);
  execl("/proc/self/exe", "e2e_workload", "pairs", "7", nullptr);
  return 95;
}

int Die(std::string_view mode) {
  if (mode == "_exit") _exit(5);
  if (mode == "abort") abort();
  if (mode == "sigterm") raise(SIGTERM);
  if (mode == "sigsegv") raise(SIGSEGV);
  if (mode == "exit") exit(6);
  return 96;
}

// Runs until killed; tells its parent when it starts.
int Forever(uint64_t, int threads) {
  if (write(STDOUT_FILENO, "go\n", 3) != 3) return 97;
  Threads(UINT64_MAX, threads);
  return 0;
}

// As daemons do, whatever the descriptors are.
void Closed(uint64_t count) {
  Pairs(1, 0);
  for (int fd = STDERR_FILENO + 1; fd < 4096; ++fd) close(fd);
  Pairs(count, 0);
}

// Waits with the log open until stdin is closed.
int Hold(uint64_t count) {
  Pairs(count, 0);
  if (write(STDOUT_FILENO, "held\n", 5) != 5) return 97;
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

int Run(std::string_view mode, uint64_t count, int threads) {
  if (mode == "none") return 0;  // starts, and is done
  if (mode == "pairs") return Pairs(count, 0), 0;
  if (mode == "native") return e2e_outer(SizeOf(count));
  if (mode == "threads") return Threads(count, threads), 0;
  if (mode == "short-threads") return ShortThreads(count), 0;
  if (mode == "fork") return Fork(count);
  if (mode == "fork-idle") return ForkIdle(count);
  if (mode == "exec") return Exec(count);
  if (mode == "forever") return Forever(count, threads);
  if (mode == "hold") return Hold(count);
  if (mode == "closed") return Closed(count), 0;
  Pairs(count, 0);
  return Die(mode);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  OpenAck();
  const uint64_t count = argc > 2 ? strtoull(argv[2], nullptr, 10) : 0;
  const int threads = argc > 3 ? atoi(argv[3]) : 1;
  const int status = Run(argv[1], count, threads);
  printf("done\n");
  return status;
}
