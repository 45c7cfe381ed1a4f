// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_MEMORY_H_
#define DSTRACE_PRELOAD_RUNTIME_MEMORY_H_

// Memory of our own. The host's malloc is never called: it may be hooked by
// somebody else, hold a lock, or be what is being traced.
//
// Thread-safe. Returns zeroed pages or nullptr.

#include <sys/mman.h>

#include <cstddef>

namespace dstrace::runtime {

inline void* MapPages(size_t bytes) noexcept {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

inline void UnmapPages(void* memory, size_t bytes) noexcept {
  if (memory != nullptr) munmap(memory, bytes);
}

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_MEMORY_H_
