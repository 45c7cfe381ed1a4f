// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_SESSION_H_
#define DSTRACE_PRELOAD_CAPTURE_SESSION_H_

// The recording of one process, from its first event to its end.
//
//   idle --first event--> recording --exit--> off
//     |                       |
//     +--cannot record--> off +--fork--> (child) idle
//
// Thread-safe. One object, never destroyed: hooks run until the last
// instruction of the process.

#include <atomic>
#include <cstdint>
#include <string_view>

#include "preload/capture/definitions.h"
#include "preload/capture/flight_recorder.h"
#include "preload/capture/process_log.h"
#include "preload/capture/recorder.h"
#include "preload/capture/stack_capture.h"
#include "preload/capture/thread_state.h"
#include "preload/capture/torch_totals.h"
#include "preload/log/log_file.h"
#include "preload/runtime/config.h"
#include "preload/runtime/fork_page.h"
#include "preload/runtime/guard.h"
#include "preload/runtime/hot.h"
#include "preload/runtime/hot_page.h"

namespace dstrace::capture {

// One object, in the order in which it is read: its padding does not matter.
class Session {  // NOLINT(clang-analyzer-optin.performance.Padding)
 public:
  static Session& Get() noexcept { return instance_; }

  // The calling thread's state, or nullptr: do not record. Opens the log on the
  // first call in a process.
  [[nodiscard]] ThreadState* Enter() noexcept {
    ThreadState* const state = ThisThread();
    // acquire: pairs with the release in Start(). A child of fork() finds
    // false.
    if (__builtin_expect(state == nullptr || !runtime::Hot().recording.load(
                                                 std::memory_order_acquire),
                         0)) {
      return EnterSlow();
    }
    return state;
  }

  [[nodiscard]] uint32_t Stack(ThreadState& thread, runtime::StackMode mode,
                               const void* caller) noexcept {
    return CaptureStack(definitions_, thread, mode, caller);
  }
  [[nodiscard]] uint32_t String(ThreadState& thread,
                                const char* text) noexcept {
    return text == nullptr ? 0 : definitions_.String(thread, text);
  }
  [[nodiscard]] uint32_t String(ThreadState& thread,
                                std::string_view text) noexcept {
    return definitions_.String(thread, text);
  }

  // One time-carrying record of at most `max_bytes`, by
  // `put(Encoder&, uint64_t time_delta)`. False: counted as loss.
  template <typename Put>
  bool Write(ThreadState& thread, size_t max_bytes, uint64_t now,
             Put put) noexcept {
    return Reserve(thread, max_bytes, now) && PutRecord(thread, now, put);
  }

  // The two halves of Write(), for what must do the second one under a lock:
  // making room may write a checkpoint, which takes all of them.
  bool Reserve(ThreadState& thread, size_t max_bytes, uint64_t now) noexcept {
    if (__builtin_expect(flight_.on(), 0)) Settle(thread);
    if (__builtin_expect(
            !thread.log.EnsureRoom(file_, max_bytes + kThreadRecord, now), 0)) {
      LoseForSpace();
      return false;
    }
    if (__builtin_expect(thread.log.NeedsThreadRecord(), 0)) {
      WriteThread(thread);
    }
    return true;
  }
  template <typename Putter>
  bool PutRecord(ThreadState& thread, uint64_t now, Putter put) noexcept {
    wire::Encoder record = thread.log.encoder();
    put(record, thread.log.TimeDelta(now));
    return thread.log.Commit(record);
  }
  // Into a chunk that is never recycled; with a limit only.
  template <typename Putter>
  bool WritePinned(ThreadState& thread, size_t max_bytes, uint64_t now,
                   Putter put) noexcept {
    return flight_.pinned().Write(file_, max_bytes, thread.log.thread(), now,
                                  now, put);
  }

  // In a child of fork(), whose parent may have been opening its log.
  void AdoptChild() noexcept { start_mutex_.ResetAfterFork(); }

  void CountLoss(LossCause cause, std::string_view detail) noexcept;
  void ModulesChanged() noexcept;
  // The last act: what is buffered is written, spare pages are cut off.
  void Finish() noexcept;

  [[nodiscard]] bool recording() const noexcept {
    return state_is_recording() && !fork_page_.IsChild();
  }
  // True until the first event in a child of fork(): what is here is the
  // parent's, and its chunks are not even mapped.
  [[nodiscard]] bool is_parents() const noexcept {
    return fork_page_.IsChild();
  }
  [[nodiscard]] const runtime::Config& config() const noexcept {
    return config_;
  }
  [[nodiscard]] ProcessLog& process() noexcept { return process_; }
  // On where the file has a limit.
  [[nodiscard]] FlightRecorder& flight() noexcept { return flight_; }

 private:
  [[nodiscard]] bool state_is_recording() const noexcept {
    // relaxed: whoever has a ThreadState got it after the state was set.
    return state_.load(std::memory_order_relaxed) == State::kRecording;
  }
  enum class State : uint32_t { kIdle, kRecording, kOff };
  // Room kept for a thread record in front of any other.
  static constexpr size_t kThreadRecord = 64;

  constexpr Session() noexcept
      : definitions_(file_, process_), flight_(file_, process_) {}

  static ThreadState* ThisThread() noexcept {
    return static_cast<ThreadState*>(runtime::t_line.state);
  }
  DSTRACE_COLD ThreadState* EnterSlow() noexcept;
  void Start() noexcept;
  bool OpenFile() noexcept;
  void PrepareStacks() noexcept;
  void NotePython() noexcept;
  bool Wanted() const noexcept;
  void BecomeChild() noexcept;
  ThreadState* TakeState() noexcept;
  DSTRACE_COLD void Settle(ThreadState& thread) noexcept;
  DSTRACE_COLD void WriteThread(ThreadState& thread) noexcept;
  DSTRACE_COLD void LoseForSpace() noexcept;
  void NoteOwnMemory() noexcept;
  static void OnThreadExit(void* state) noexcept;
  static void OnExit(int status, void*) noexcept;

  static Session instance_;

  std::atomic<State> state_{State::kIdle};
  runtime::Mutex start_mutex_;  // Start, OpenFile
  runtime::ForkPage fork_page_;
  runtime::Config config_;
  bool hooks_installed_ = false;
  uint32_t thread_key_ = 0;
  std::atomic<bool> said_disk_full_{false};
  std::atomic<bool> said_python_{false};

  log::LogFile file_;
  ProcessLog process_;
  Definitions definitions_;
  ThreadStatePool threads_;
  FlightRecorder flight_;
};

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_SESSION_H_
