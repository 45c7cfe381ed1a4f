// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_TABLE_SWAP_H_
#define DSTRACE_PRELOAD_CAPTURE_TABLE_SWAP_H_

// How a hash table takes other memory, so that a child of fork() may unmap what
// it finds: at no instant are there more entries than there is memory.
//
// Thread-safety: one thread at a time changes a table; the child of another one
// may see it at any instant.

#include <atomic>
#include <cstddef>

namespace dstrace::capture {

template <typename Entry>
void SwapTable(Entry*& entries, size_t& capacity, Entry* new_entries,
               size_t new_capacity) noexcept {
  capacity = 0;
  // The compiler keeps the order of the stores; the processor does anyway.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  entries = new_entries;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  capacity = new_capacity;
}

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_TABLE_SWAP_H_
