// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/stack_witness.h"

#include <atomic>
#include <cerrno>

#include "preload/runtime/fork_gate.h"

#define UNW_LOCAL_ONLY
#include <libunwind.h>

namespace dstrace::stacks {
namespace {

// Where one step of this thread's unwinder has read.
struct Reads {
  static constexpr int kMax = 8;
  int count;
  uintptr_t addresses[kMax];
};

thread_local Reads* t_reads __attribute__((tls_model("initial-exec"))) =
    nullptr;

using AccessMemory = int (*)(unw_addr_space_t, unw_word_t, unw_word_t*, int,
                             void*);
std::atomic<AccessMemory> g_real_access{nullptr};

int NoteAccess(unw_addr_space_t space, unw_word_t address, unw_word_t* value,
               int write, void* argument) noexcept {
  if (Reads* const reads = t_reads; reads != nullptr) {
    if (reads->count < Reads::kMax) reads->addresses[reads->count] = address;
    ++reads->count;
  }
  // acquire: pairs with the exchange in WatchReads.
  return g_real_access.load(std::memory_order_acquire)(space, address, value,
                                                       write, argument);
}

// Puts NoteAccess in front of the unwinder's own accessor, once.
void WatchReads() noexcept {
  unw_accessors_t* const accessors = unw_get_accessors(unw_local_addr_space);
  const std::atomic_ref<AccessMemory> slot(accessors->access_mem);
  AccessMemory real = slot.load(std::memory_order_acquire);
  if (real == &NoteAccess) return;
  // Threads that come here at once store the same function, each before it
  // puts ours in place (release, pairs with the unwinder's load of a pointer
  // that it then calls).
  g_real_access.store(real, std::memory_order_release);
  slot.store(&NoteAccess, std::memory_order_release);
}

uintptr_t Register(unw_cursor_t* cursor, unw_regnum_t number) noexcept {
  unw_word_t value = 0;
  return unw_get_reg(cursor, number, &value) == 0 ? value : 0;
}

class Recorder {
 public:
  Recorder(uintptr_t frame, StackWitness* witness) noexcept
      : frame_(frame), witness_(witness) {
    witness->count = 0;
  }

  // Steps out to the function that called the owner of `frame`.
  bool LeaveOwner(unw_cursor_t* cursor) noexcept;
  // Walks to the outermost frame.
  bool Walk(unw_cursor_t* cursor) noexcept;
  bool EndsWith(void* const* pcs, int count) const noexcept;

 private:
  enum class Step { kDone, kMore, kFailed };
  Step Take(unw_cursor_t* cursor) noexcept;
  bool AddReads(const Reads& reads, uintptr_t sp) noexcept;
  bool AddRealignment(uintptr_t base, uintptr_t sp) noexcept;
  bool AddWord(uintptr_t address) noexcept;
  bool AddPc(uintptr_t pc) noexcept {
    if (frames_ == StackWitness::kMaxFrames) return false;
    witness_->pcs[frames_++] = reinterpret_cast<void*>(pc);
    return true;
  }

  const uintptr_t frame_;
  StackWitness* const witness_;
  int frames_ = 0;
};

__attribute__((no_sanitize("address", "thread"))) uint64_t WordAt(
    uintptr_t address) noexcept {
  return *reinterpret_cast<const volatile uint64_t*>(address);
}

bool Recorder::AddWord(uintptr_t address) noexcept {
  if (address < frame_ || address % sizeof(uint64_t) != 0) return false;
  const uintptr_t offset = (address - frame_) / sizeof(uint64_t);
  if (offset > UINT32_MAX || witness_->count == StackWitness::kMaxWords) {
    return false;
  }
  witness_->offsets[witness_->count] = static_cast<uint32_t>(offset);
  witness_->words[witness_->count] = WordAt(address);
  ++witness_->count;
  return true;
}

bool Recorder::LeaveOwner(unw_cursor_t* cursor) noexcept {
  constexpr int kMostInnerFrames = 8;
  const uintptr_t caller_sp = frame_ + 2 * sizeof(uint64_t);
  for (int i = 0; i < kMostInnerFrames; ++i) {
    if (unw_step(cursor) <= 0) return false;
    const uintptr_t sp = Register(cursor, UNW_REG_SP);
    if (sp > caller_sp) return false;
    if (sp < caller_sp) continue;
    const uintptr_t return_address = frame_ + sizeof(uint64_t);
    const uintptr_t pc = Register(cursor, UNW_REG_IP);
    return WordAt(return_address) == pc && AddWord(return_address) && AddPc(pc);
  }
  return false;
}

// A function that realigns its stack keeps the address of its caller's frame in
// a word next to its own frame pointer `base`; the unwinder follows that word
// without asking its accessor.
bool Recorder::AddRealignment(uintptr_t base, uintptr_t sp) noexcept {
  constexpr uintptr_t kWindow = 128;
  const uintptr_t lowest = base - frame_ > kWindow ? base - kWindow : frame_;
  for (uintptr_t at = lowest; at < base; at += sizeof(uint64_t)) {
    if (WordAt(at) == sp && !AddWord(at)) return false;
  }
  return true;
}

// A plain step reads the registers that the CFA depends on, if any, then the
// return address just below the new CFA. Whatever else reads (a signal frame, a
// guess without unwind information, which looks at code) is refused, as is a
// register that lies below `frame` or still in the context: not in the witness.
bool Recorder::AddReads(const Reads& reads, uintptr_t sp) noexcept {
  if (reads.count < 1 || reads.count > Reads::kMax) return false;
  const int registers = reads.count - 1;
  if (reads.addresses[registers] != sp - sizeof(uint64_t)) return false;
  for (int i = 0; i < registers; ++i) {
    const uintptr_t address = reads.addresses[i];
    if (address >= sp || !AddWord(address)) return false;
    const uintptr_t base = WordAt(address);
    // Neither at the bottom of a plain frame nor outside of the stack.
    if (base + 2 * sizeof(uint64_t) == sp || base < frame_ || base >= sp)
      continue;
    if (base % sizeof(uint64_t) != 0 || !AddRealignment(base, sp)) return false;
  }
  return AddWord(reads.addresses[registers]);
}

Recorder::Step Recorder::Take(unw_cursor_t* cursor) noexcept {
  const uintptr_t inner_sp = Register(cursor, UNW_REG_SP);
  Reads reads;
  reads.count = 0;
  t_reads = &reads;
  const int result = unw_step(cursor);
  t_reads = nullptr;
  if (result < 0) return Step::kFailed;
  // The outermost code says that it has no caller; nothing may be read for it.
  if (result == 0) return reads.count == 0 ? Step::kDone : Step::kFailed;
  const uintptr_t sp = Register(cursor, UNW_REG_SP);
  if (sp <= inner_sp || !AddReads(reads, sp)) return Step::kFailed;
  const uintptr_t pc = Register(cursor, UNW_REG_IP);
  if (witness_->words[witness_->count - 1] != pc) return Step::kFailed;
  // A return address of zero ends the stack, as the unwinder sees it.
  if (pc == 0) return Step::kDone;
  return AddPc(pc) ? Step::kMore : Step::kFailed;
}

bool Recorder::Walk(unw_cursor_t* cursor) noexcept {
  Step step;
  do {
    step = Take(cursor);
  } while (step == Step::kMore);
  return step == Step::kDone;
}

bool Recorder::EndsWith(void* const* pcs, int count) const noexcept {
  if (count <= 0 || frames_ < count) return false;
  return memcmp(witness_->pcs + (frames_ - count), pcs,
                static_cast<size_t>(count) * sizeof(void*)) == 0;
}

}  // namespace

bool RecordWitness(const void* frame, void* const* pcs, int count,
                   StackWitness* witness) noexcept {
  const runtime::ForkGate::Visit visit;
  if (!visit.entered()) return false;
  const int saved_errno = errno;
  WatchReads();
  unw_context_t context;
  unw_cursor_t cursor;
  Recorder recorder(reinterpret_cast<uintptr_t>(frame), witness);
  const bool recorded = unw_getcontext(&context) == 0 &&
                        unw_init_local(&cursor, &context) == 0 &&
                        recorder.LeaveOwner(&cursor) &&
                        recorder.Walk(&cursor) && recorder.EndsWith(pcs, count);
  errno = saved_errno;
  return recorded;
}

}  // namespace dstrace::stacks
