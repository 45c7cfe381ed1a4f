// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_MEMORY_H_
#define DSTRACE_PRELOAD_RUNTIME_MEMORY_H_

// Memory of our own. The host's malloc is never called: it may be hooked by
// somebody else, hold a lock, or be what is being traced.
//
// Thread-safe. Returns zeroed pages or nullptr.

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dstrace::runtime {

// Bytes of MapPages() that are mapped, touched or not.
inline constinit std::atomic<uint64_t> g_mapped_bytes{0};

inline void* MapPages(size_t bytes) noexcept {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // relaxed: a figure to report.
  g_mapped_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return memory;
}

// The same with huge pages where the kernel gives them: for what is touched
// here and there at every event. Aligned to them.
inline void* MapHugePages(size_t bytes) noexcept {
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  auto* const memory = static_cast<char*>(MapPages(bytes + kHuge));
  if (memory == nullptr) return nullptr;
  const uintptr_t before = -reinterpret_cast<uintptr_t>(memory) & (kHuge - 1);
  char* const aligned = memory + before;
  if (before != 0) munmap(memory, before);
  if (before != kHuge) munmap(aligned + bytes, kHuge - before);
  madvise(aligned, bytes, MADV_HUGEPAGE);
  g_mapped_bytes.fetch_sub(kHuge, std::memory_order_relaxed);  // as above
  return aligned;
}

inline void UnmapPages(void* memory, size_t bytes) noexcept {
  if (memory == nullptr) return;
  munmap(memory, bytes);
  g_mapped_bytes.fetch_sub(bytes, std::memory_order_relaxed);  // as above
}

inline uint64_t MappedBytes() noexcept {
  return g_mapped_bytes.load(std::memory_order_relaxed);  // as above
}

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_MEMORY_H_
