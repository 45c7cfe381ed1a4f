// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_FORK_GATE_H_
#define DSTRACE_PRELOAD_RUNTIME_FORK_GATE_H_

// Keeps threads out of the unwinder and of the loader's list of modules while
// the process forks. Both have locks that nobody can reset: a child that
// inherits one from a thread it does not have would wait for it for ever, in
// the unwinder with signals blocked.
//
//   thread that unwinds            thread that forks
//   ------------------------------------------------------------
//   count itself in (seq_cst)      close the gate (seq_cst)
//   gate closed? then out again    anyone counted in? wait, not for long
//
// One of the two sees the other. A thread that would unwind finds the gate
// closed and goes without native frames, it does not wait: what it holds (an
// allocator's lock) may be what another library's fork handler waits for. One
// that asks for a module waits, not for long: what it learns is kept.
//
// Where a thread would not leave in time, or fork handlers were not run
// (clone() by hand) while one was inside, the child's gate stays closed: its
// stacks have Python frames only, and it says so.
//
// Thread-safety: thread-safe. To enter and to leave cost one locked addition
// each, on a cache line that few threads share. errno is preserved.

namespace dstrace::runtime {

class ForkGate {
 public:
  enum class Patience { kNone, kSome };

  // While this lives and entered() is true, the unwinder may be called, and
  // dl_iterate_phdr. With some patience it is false in a child whose gate is
  // closed for good, and nowhere else. May be nested.
  class Visit {
   public:
    explicit Visit(Patience patience = Patience::kNone) noexcept;
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    [[nodiscard]] bool entered() const noexcept { return entered_; }

   private:
    bool entered_ = false;
  };

  // Around fork(), as pthread_atfork's handlers.
  static void CloseForFork() noexcept;
  static void OpenInParent() noexcept;
  // May be called again when the child first records, in case no handler was.
  static void AdoptChild() noexcept;

  // True in a child that can never unwind.
  [[nodiscard]] static bool closed_for_good() noexcept;

 private:
  static bool TryEnter() noexcept;
};

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_FORK_GATE_H_
