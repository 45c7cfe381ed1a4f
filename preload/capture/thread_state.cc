// SPDX-License-Identifier: Apache-2.0
#include "preload/capture/thread_state.h"

#include "preload/runtime/memory.h"

namespace dstrace::capture {

ThreadState* ThreadStatePool::Take(uint32_t thread) noexcept {
  ThreadState* state = nullptr;
  {
    const runtime::MutexLock lock(mutex_);
    state = free_;
    if (state != nullptr) free_ = state->next_free;
  }
  if (state == nullptr) {
    state = static_cast<ThreadState*>(runtime::MapPages(sizeof(ThreadState)));
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
