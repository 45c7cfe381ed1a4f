// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_DEFINITIONS_H_
#define DSTRACE_PRELOAD_CAPTURE_DEFINITIONS_H_

// Gives strings, modules, frames and stacks their ids and writes each of them
// into the log once, before any record can use the id.
//
// Thread-safe. Reached only on a miss of a thread's own cache. Holds one lock
// of ours at a time, and none while it asks the loader or reads Python: a thing
// is described first, then numbered and written under the lock.
//
// Order that makes an id safe to use: its record is committed before the id
// leaves the lock, so whoever has the id finds the record in the file.

#include <cstdint>
#include <span>
#include <string_view>

#include "preload/capture/hash.h"
#include "preload/capture/id_table.h"
#include "preload/capture/pinned_log.h"
#include "preload/capture/process_log.h"
#include "preload/capture/thread_state.h"
#include "preload/log/log_file.h"
#include "preload/runtime/mutex.h"
#include "preload/stacks/merge.h"

namespace dstrace::capture {

class Definitions {
 public:
  constexpr Definitions(log::LogFile& file, ProcessLog& losses) noexcept
      : file_(file), losses_(losses) {}

  // For a file with a limit: definitions go to chunks that stay. Before the
  // first event; nullptr: to the thread's chunk.
  void WriteTo(PinnedLog* pinned) noexcept { pinned_ = pinned; }

  // Stacks beyond this many get no id. Before the first event.
  void LimitStacks(uint32_t limit) noexcept { stacks_.set_limit(limit); }

  // Each returns 0 where it could not be written. No space: the caller's own
  // record will not find any either and counts it. A full table or no memory
  // is counted here.
  [[nodiscard]] uint32_t String(ThreadState& thread,
                                std::string_view text) noexcept;
  // `key` identifies the stack; its frames are those of thread.merged. Where
  // the table is full, each call is one loss: one event without its stack.
  [[nodiscard]] uint32_t Stack(ThreadState& thread, const Key& key, int frames,
                               bool truncated) noexcept;

  // A module was unloaded: an address may now be other code.
  void ModulesChanged() noexcept {
    // relaxed: the caller's dlclose orders it against the code it unloaded.
    generation_.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t generation() const noexcept {
    return generation_.load(std::memory_order_relaxed);
  }

  void AbandonInChild() noexcept;

 private:
  template <typename Put>
  uint32_t Define(ThreadState& thread, IdTable& table, const Key& key,
                  size_t max_bytes, Put put) noexcept;
  template <typename Put>
  void WriteDefinition(ThreadState& thread, size_t max_bytes, uint64_t now,
                       uint32_t id, Put put) noexcept;
  uint32_t Frame(ThreadState& thread, const stacks::Frame& frame) noexcept;
  uint32_t NativeFrame(ThreadState& thread, const Key& key,
                       uintptr_t pc) noexcept;
  uint32_t PythonFrame(ThreadState& thread, const Key& key,
                       const stacks::Frame& frame) noexcept;
  uint32_t Module(ThreadState& thread,
                  const stacks::ModuleInfo& module) noexcept;
  uint32_t Find(const IdTable& table, const Key& key) noexcept;
  uint32_t Lose(bool is_full, uint32_t limit) noexcept;

  log::LogFile& file_;
  ProcessLog& losses_;
  PinnedLog* pinned_ = nullptr;
  std::atomic<uint64_t> generation_{1};
  runtime::Mutex mutex_;  // the tables
  IdTable strings_;
  IdTable modules_;
  IdTable frames_;
  IdTable stacks_;
  std::atomic<bool> told_full_{false};
};

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_DEFINITIONS_H_
