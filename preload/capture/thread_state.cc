// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/thread_state.h"

#include "preload/runtime/memory.h"

namespace dstrace::capture {

// Huge pages for the first states: an event touches a dozen places in its
// state, and a look-up of a cold page costs as much as a cold line. For the
// first ones only, since a huge page is resident as a whole.
ThreadState* ThreadStatePool::Make() noexcept {
  constexpr int kWithHugePages = 4;
  constexpr size_t kPage = 4096;
  constexpr size_t kBytes = (sizeof(ThreadState) + kPage - 1) / kPage * kPage;
  // relaxed: a count.
  const bool huge =
      made_.fetch_add(1, std::memory_order_relaxed) < kWithHugePages;
  return static_cast<ThreadState*>(huge ? runtime::MapHugePages(kBytes)
                                        : runtime::MapPages(kBytes));
}

ThreadState* ThreadStatePool::Take(uint32_t thread) noexcept {
  ThreadState* state = nullptr;
  {
    const runtime::MutexLock lock(mutex_);
    state = free_;
    if (state != nullptr) free_ = state->next_free;
  }
  if (state == nullptr) {
    state = Make();
  }
  if (state != nullptr) state->log.AdoptBy(thread);
  return state;
}

void ThreadStatePool::GiveBack(ThreadState* state) noexcept {
  const runtime::MutexLock lock(mutex_);
  state->next_free = free_;
  free_ = state;
}

void ThreadStatePool::AbandonInChild() noexcept {
  mutex_.ResetAfterFork();
  free_ = nullptr;
}

}  // namespace dstrace::capture
