// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/native.h"

#include <cerrno>
#include <cstdint>

#include "preload/runtime/fork_gate.h"
#include "preload/stacks/elf_module.h"
#include "preload/stacks/generation.h"

#define UNW_LOCAL_ONLY
#include <libunwind.h>

namespace dstrace::stacks {

std::atomic<uint32_t> g_module_generation{1};

namespace {

// Where libdstrace.so lies. Written once, by whoever comes first, with values
// that never change while our code runs: two writers store the same. `end` is
// stored last (release) and pairs with the acquire load in OwnRange.
std::atomic<uintptr_t> g_own_start{0};
std::atomic<uintptr_t> g_own_end{0};

struct Range {
  uintptr_t start;
  uintptr_t end;
};

Range OwnRange() noexcept {
  uintptr_t end = g_own_end.load(std::memory_order_acquire);
  if (__builtin_expect(end == 0, 0)) {
    ElfModule module;
    if (!FindModuleAt(reinterpret_cast<uintptr_t>(&CaptureNative), &module))
      return {0, 0};
    g_own_start.store(module.start,
                      std::memory_order_relaxed);  // published by g_own_end
    g_own_end.store(module.end, std::memory_order_release);
    end = module.end;
  }
  return {g_own_start.load(std::memory_order_relaxed), end};
}

}  // namespace

void WarmUp() noexcept {
  const int saved_errno = errno;
  OwnRange();
  const runtime::ForkGate::Visit visit;
  if (!visit.entered()) return;
  void* pcs[64];
  // Twice: the first call fills the caches, the second takes the fast path and
  // so resolves the last lazily bound functions.
  for (int i = 0; i < 2; ++i) unw_backtrace(pcs, 64);
  errno = saved_errno;
}

int CaptureNative(void** pcs, int max) noexcept {
  if (max <= 0) return 0;
  const int saved_errno = errno;
  int count = 0;
  {
    const runtime::ForkGate::Visit visit;
    if (!visit.entered()) return 0;
    count = unw_backtrace(pcs, max);
  }
  const Range own = OwnRange();
  int skip = 0;
  while (skip < count) {
    const uintptr_t pc = reinterpret_cast<uintptr_t>(pcs[skip]) - 1;
    if (pc - own.start >= own.end - own.start) break;
    ++skip;
  }
  if (skip > 0) {
    for (int i = skip; i < count; ++i) pcs[i - skip] = pcs[i];
  }
  errno = saved_errno;
  return count > skip ? count - skip : 0;
}

void ModulesChanged() noexcept {
  const int saved_errno = errno;
  // Relaxed: readers only compare it with what they saw before.
  g_module_generation.fetch_add(1, std::memory_order_relaxed);
  // Only counts a generation on, without a lock.
  unw_flush_cache(unw_local_addr_space, 0, 0);
  errno = saved_errno;
}

}  // namespace dstrace::stacks
