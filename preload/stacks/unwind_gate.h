// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_UNWIND_GATE_H_
#define DSTRACE_PRELOAD_STACKS_UNWIND_GATE_H_

// Keeps threads out of the unwinder while the process forks. The unwinder has
// locks that nobody can reset: a child that inherits one from a thread it does
// not have would wait for it for ever, with signals blocked.
//
//   thread that unwinds            thread that forks
//   ------------------------------------------------------------
//   count itself in (seq_cst)      close the gate (seq_cst)
//   gate closed? then out again    anyone counted in? wait, not for long
//
// One of the two sees the other. A thread that finds the gate closed goes
// without native frames and does not wait: what it holds (an allocator's lock)
// may be what another library's fork handler waits for.
//
// Where a thread would not leave in time, or fork handlers were not run
// (clone() by hand) while one was inside, the child's gate stays closed: its
// stacks have Python frames only, and it says so.
//
// Thread-safety: thread-safe. Enter and Leave cost one locked addition each,
// on a cache line that few threads share.

namespace dstrace::stacks {

class UnwindGate {
 public:
  // While this lives and entered() is true, the unwinder may be called.
  class Visit {
   public:
    Visit() noexcept;
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    [[nodiscard]] bool entered() const noexcept { return entered_; }

   private:
    bool entered_;
  };

  // Around fork(), as pthread_atfork's handlers.
  static void CloseForFork() noexcept;
  static void OpenInParent() noexcept;
  // May be called again when the child first records, in case no handler was.
  static void AdoptChild() noexcept;

  // True in a child that can never unwind.
  [[nodiscard]] static bool closed_for_good() noexcept;
};

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_UNWIND_GATE_H_
