// SPDX-License-Identifier: Apache-2.0
//
// Which pages do threads write when they record stacks that are known? Prints
// those that more than one of them writes, where each works for a GPU of its
// own. What several processors write costs each of them the line anew, and a
// machine with two hardly shows it.
//
//   apart_program THREADS EVENTS
//
// Of a chunk hold twice as many events: who opens one takes the file's lock.
//
// One thread after the other goes through the hit path while all memory but its
// stack is read-only: each first store into a page raises SIGSEGV, is noted and
// let through. The page that a child finds zeroed ("wf") is left out: there
// each GPU has a line of its own (runtime/hot_page.h).
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/c10.h"

namespace {

constexpr uintptr_t kPage = 4096;
constexpr int kMaxPages = 4096;
constexpr int kMaxThreads = 32;

struct Mapping {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool writable = false;
  bool is_wiped = false;
  std::string name;

  bool Holds(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at >= begin && at < end;
  }
};

std::vector<Mapping> Mappings() {
  std::vector<Mapping> found;
  std::ifstream maps("/proc/self/smaps");
  for (std::string line; std::getline(maps, line);) {
    Mapping mapping;
    char mode[5] = {};
    int name = 0;
    if (std::sscanf(line.c_str(),
                    "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %*s %n",
                    &mapping.begin, &mapping.end, mode, &name) == 3) {
      mapping.writable = mode[1] == 'w';
      if (name > 0) mapping.name = line.substr(static_cast<size_t>(name));
      found.push_back(mapping);
    } else if (line.rfind("VmFlags:", 0) == 0) {
      found.back().is_wiped = line.find(" wf") != std::string::npos;
    }
  }
  return found;
}

// Of the thread that is watched. In the program's own data, which is not
// protected.
uintptr_t g_pages[kMaxPages];
int g_count = 0;
// An address in each thread's, and in main's; its thread-local data lies apart.
const void* g_stacks[kMaxThreads + 2];
alignas(16) char g_signal_stack[65536];

// Calls nothing but syscall(), which was called before: to find a function for
// the first time the linker writes.
void OnStore(int, siginfo_t* info, void*) {
  const uintptr_t page =
      reinterpret_cast<uintptr_t>(info->si_addr) / kPage * kPage;
  if (g_count == kMaxPages ||
      syscall(SYS_mprotect, page, kPage, PROT_READ | PROT_WRITE) != 0) {
    syscall(SYS_exit_group, 3);
  }
  g_pages[g_count++] = page;
}

void CatchStores() {
  const stack_t stack = {g_signal_stack, 0, sizeof g_signal_stack};
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = OnStore;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
}

void Protect(const std::vector<Mapping>& mappings, int mode) {
  for (const Mapping& m : mappings) {
    syscall(SYS_mprotect, m.begin, m.end - m.begin, mode);
  }
}

// All that is neither a thread's stack, with its thread-local data, nor this
// program's data.
std::vector<Mapping> Others() {
  std::vector<Mapping> others;
  bool has_wiped = false;
  for (const Mapping& m : Mappings()) {
    has_wiped |= m.is_wiped;
    bool is_own = m.Holds(g_pages) || m.Holds(g_signal_stack) || m.is_wiped;
    for (const void* const stack : g_stacks) is_own |= m.Holds(stack);
    if (m.writable && !is_own) others.push_back(m);
  }
  // This kernel has no MADV_WIPEONFORK: which page it is cannot be told.
  if (!has_wiped) syscall(SYS_exit_group, 77);
  return others;
}

[[gnu::noinline]] void Hits(int events, int device) {
  for (int i = 0; i < events; i += 2) {
    const auto offset = static_cast<uintptr_t>(i) % 256 * 512;
    void* const block = reinterpret_cast<void*>(0x7f0000000000 + offset);
    const auto index = static_cast<int8_t>(device);
    c10::reportMemoryUsageToProfiler(block, 512, 512, 0, {1, index});
    c10::reportMemoryUsageToProfiler(block, -512, 0, 0, {1, index});
  }
}

// Pages, with the names of what is mapped there.
using Pages = std::vector<std::pair<uintptr_t, std::string>>;

Pages Watched(int events, int thread) {
  std::vector<Mapping> others;
  // Called from one place: the stacks are the same.
  for (const bool is_watched : {false, true}) {
    if (is_watched) {
      others = Others();
      CatchStores();
      g_count = 0;
      Protect(others, PROT_READ);
    }
    Hits(events, thread);
  }
  const int written = g_count;
  Protect(others, PROT_READ | PROT_WRITE);
  Pages pages;
  for (int i = 0; i < written; ++i) {
    for (const Mapping& m : others) {
      if (m.Holds(reinterpret_cast<void*>(g_pages[i]))) {
        pages.emplace_back(g_pages[i], m.name);
      }
    }
  }
  return pages;
}

// One at a time; the others sleep in read(), which writes nothing that is
// protected.
class Turns {
 public:
  explicit Turns(int threads) : go_(static_cast<size_t>(threads)) {
    for (Pipe& pipe : go_) Open(pipe);
    Open(back_);
  }
  void Give(int thread) { Put(go_[static_cast<size_t>(thread)]); }
  void Await(int thread) { Take(go_[static_cast<size_t>(thread)]); }
  void GiveBack() { Put(back_); }
  void AwaitBack() { Take(back_); }

 private:
  struct Pipe {
    int ends[2];
  };
  static void Open(Pipe& pipe) {
    if (::pipe(pipe.ends) != 0) std::exit(4);
  }
  static void Put(const Pipe& pipe) {
    if (write(pipe.ends[1], "", 1) != 1) std::exit(4);
  }
  static void Take(const Pipe& pipe) {
    char byte;
    if (read(pipe.ends[0], &byte, 1) != 1) std::exit(4);
  }

  std::vector<Pipe> go_;
  Pipe back_;
};

std::vector<Pages> WatchAll(int threads, int events) {
  std::vector<Pages> pages(static_cast<size_t>(threads));
  Turns turns(threads);
  std::vector<std::thread> all;
  const char here = 0;
  g_stacks[kMaxThreads] = &here;
  g_stacks[kMaxThreads + 1] = &errno;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      const char own = 0;
      g_stacks[t] = &own;
      turns.GiveBack();
      turns.Await(t);
      pages[static_cast<size_t>(t)] = Watched(events, t);
      turns.GiveBack();
      turns.Await(t);  // to end writes what the others may not
    });
  }
  for (int t = 0; t < threads; ++t) turns.AwaitBack();
  for (int t = 0; t < threads; ++t) {
    turns.Give(t);
    turns.AwaitBack();
  }
  for (int t = 0; t < threads; ++t) turns.Give(t);
  for (std::thread& thread : all) thread.join();
  return pages;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 2 ? std::atoi(argv[1]) : 0;
  const int events = argc > 2 ? std::atoi(argv[2]) : 0;
  if (threads < 2 || threads > kMaxThreads) return 2;
  std::map<std::pair<uintptr_t, std::string>, int> writers;
  size_t fewest = kMaxPages;
  for (const Pages& written : WatchAll(threads, events)) {
    fewest = std::min(fewest, written.size());
    for (const auto& page : written) ++writers[page];
  }
  int shared = 0;
  for (const auto& [page, count] : writers) {
    // What stands for torch may count its calls.
    if (count < 2 || page.second.find("libc10") != std::string::npos) continue;
    ++shared;
    std::fprintf(stderr, "%#" PRIxPTR " %s: %d threads\n", page.first,
                 page.second.c_str(), count);
  }
  std::printf("%d shared, each wrote %s\n", shared,
              fewest > 1 ? "its own" : "nothing");
  return 0;
}
