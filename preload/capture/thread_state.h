// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_THREAD_STATE_H_
#define DSTRACE_PRELOAD_CAPTURE_THREAD_STATE_H_

// What one recording thread owns: its place in the log, its cache of stacks,
// and the buffers a stack is taken into (hooks run on stacks of unknown size).
//
// A thread gets its state at its first event and gives it back, open chunk
// included, when it exits; the next new thread goes on in it.
//
// Thread-safety: a state belongs to one thread. The pool is thread-safe.

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "preload/capture/hash.h"
#include "preload/capture/live_tensors.h"
#include "preload/log/thread_log.h"
#include "preload/runtime/mutex.h"
#include "preload/stacks/merge.h"
#include "preload/stacks/python.h"
#include "preload/stacks/python_chain.h"
#include "preload/stacks/symbol.h"
#include "preload/stacks/witness_cache.h"

namespace dstrace::capture {

// From the key of a stack to its id, for the stacks this thread took lately:
// two ways per set, the older one is replaced.
class StackCache {
 public:
  // 0 where it is not known.
  [[nodiscard]] uint32_t Find(const Key& key) noexcept {
    Entry(&ways)[2] = SetOf(key).ways;
    if (ways[0].key == key) return ways[0].id;
    if (ways[1].key != key) return 0;
    const Entry found = ways[1];
    ways[1] = ways[0];
    ways[0] = found;
    return found.id;
  }
  void Add(const Key& key, uint32_t id) noexcept {
    Entry(&ways)[2] = SetOf(key).ways;
    ways[1] = ways[0];
    ways[0] = {key, id};
  }

 private:
  struct Entry {
    Key key;
    uint32_t id;
  };
  struct alignas(64) Set {  // a line
    Entry ways[2];
  };
  static constexpr uint32_t kSets = 1024;
  Set& SetOf(const Key& key) noexcept { return sets_[key.low & (kSets - 1)]; }
  Set sets_[kSets];
};

struct alignas(64) ThreadState {
  static constexpr int kMaxNative = 192;
  static constexpr int kMaxPython = 256;
  static constexpr int kMaxFrames = kMaxNative + kMaxPython;

  log::ThreadLog log;  // begins with what every event needs, a line
  stacks::PythonChain chain;
  StackCache stacks;
  stacks::WitnessCache witnessed;

  void* native[kMaxNative];
  stacks::PyFrame python[kMaxPython];
  uint64_t words[2 + kMaxNative];  // what keys are made of
  stacks::Frame merged[kMaxFrames];
  uint32_t frame_ids[kMaxFrames];
  stacks::StackWitness witness;
  stacks::SymbolInfo symbol;
  stacks::PyCodeInfo code;
  LiveTensors::Changes* live;  // in a file with a limit
  ThreadState* next_free;
};

// Lives in zeroed pages, is never constructed or destroyed.
static_assert(std::is_trivially_default_constructible_v<ThreadState>);
static_assert(std::is_trivially_destructible_v<ThreadState>);

class ThreadStatePool {
 public:
  constexpr ThreadStatePool() noexcept = default;

  // A state for the calling thread: one that was given back, or a fresh one.
  // nullptr where there is no memory.
  [[nodiscard]] ThreadState* Take(uint32_t thread) noexcept;
  void GiveBack(ThreadState* state) noexcept;
  // Forgets all states (they hold the parent's chunks).
  void AbandonInChild() noexcept;

  // Calls `visit` for each state that no thread holds.
  template <typename Visitor>
  void ForEachFree(Visitor visit) noexcept {
    const runtime::MutexLock lock(mutex_);
    for (ThreadState* s = free_; s != nullptr; s = s->next_free) visit(*s);
  }

 private:
  ThreadState* Make() noexcept;

  runtime::Mutex mutex_;
  ThreadState* free_ = nullptr;
  std::atomic<int> made_{0};
};

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_THREAD_STATE_H_
