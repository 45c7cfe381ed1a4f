// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_STACKS_PYTHON_CHAIN_H_
#define DSTRACE_PRELOAD_STACKS_PYTHON_CHAIN_H_

// The Python frames of one thread, kept from event to event, and a key for
// them.
//
// From one allocation to the next the outer part of a stack rarely changes. So
// the chain of frames of the last event is kept, outermost first, each link
// with a key for itself and everything around it. At the next event frames are
// walked from the innermost on until one is met that is in the chain and looks
// just as it did, as does everything around it; only those before it are read
// in full.
//
//   links   [0]      [1]      [2]      [3]
//           module   train    forward  linear      last event
//           module   train    forward' relu        now: [0] and [1] are kept
//
// A link looks as it did when frame, caller, code object, instruction and what
// tells this code object from a later one at its address are the same: all that
// a full reading depends on. So the key is that of a full reading, always.
//
// Memory: lies in zeroed pages, touched as deep as stacks get. Thread-safety:
// none, one per thread.

#include <cstdint>
#include <type_traits>

#include "preload/runtime/hot.h"
#include "preload/stacks/python.h"
#include "preload/stacks/python_frame.h"
#include "preload/stacks/python_text.h"

namespace dstrace::stacks {

class PythonChain {
 public:
  // Frames that are looked at, hidden ones and loop ends included.
  static constexpr int kMaxLinks = 320;

  struct Key {
    uint64_t low;
    uint64_t high;
    friend bool operator==(const Key&, const Key&) = default;
  };

  // Takes the calling thread's stack. Equal stacks have equal keys, in every
  // thread; different ones differ but for a chance of 2^-64. A thread that runs
  // no Python has the key {0, 0}.
  [[nodiscard]] DSTRACE_HOT Key Take() noexcept;
  // Sends for the links that Take() will compare first; before what else an
  // event does, since the processor waits for the clock.
  DSTRACE_PREFETCH void Prefetch() const noexcept {
    const int end = count_ - kLinksAhead;
    for (int i = count_; i > 0 && i > end; i -= 2)
      runtime::Prefetch(links_ + i);
  }

  // The frames of the last Take(), as CapturePython gives them; while they are
  // still on the stack.
  int Frames(PyFrame* out, int max, bool* truncated) const noexcept;

  // How many links the last Take() had to read in full.
  [[nodiscard]] int links_read() const noexcept { return fresh_count_; }

 private:
  // What of a code object's memory tells it from a later one there, where no
  // version does.
  struct Identity {
    uintptr_t code;  // as the frame refers to it; from 3.12 on
    uintptr_t name;
    uintptr_t lines;
    uint64_t name_hash;
    uint64_t lines_size;
    TextWitness file;
    uint32_t first_line;
  };
  // A frame's memory, as it was: all that a walk compares, two to a cache line.
  // Its caller is the link before it.
  struct Link {
    uintptr_t frame;
    uintptr_t instruction;
    // From 3.12 on where `version` lies while it is the same code object; to be
    // read while the frame refers to that: later its memory may be given back.
    // Where nothing needs to be looked at it is this link's own version, where
    // an identity must be, kNotThere. Before 3.12 the code object.
    uintptr_t there;
    uint32_t version;
    // Of the frame's reference to the code object, the lower half. With the
    // instruction it is exact: from 3.12 on that lies in the code object (or,
    // in free-threaded 3.14, in a copy that ends with it).
    uint32_t code;
  };
  static_assert(sizeof(Link) == 32);
  static constexpr uint32_t kNoVersion = 0;
  static constexpr uint32_t kSeeIdentity = 1;
  static constexpr uint32_t kNotThere = 0;

  struct Offsets;
  // Code objects and a file name that were found unchanged in this walk: at the
  // last event all links of the chain held at once, so what holds for one link
  // holds for all that have the same address.
  struct Checked {
    static constexpr size_t kCodes = 8;
    static size_t PlaceOf(uintptr_t code) noexcept {
      return code / 64 % kCodes;
    }
    uintptr_t codes[kCodes];
    uintptr_t file;
  };

  // Two to a line.
  static constexpr int kLinksAhead = 16;
  // A hash table of links by frame; what it says is checked, never trusted.
  static constexpr int kPlaces = 512;

  static Identity IdentityOf(const PyLayout& layout, uintptr_t code) noexcept;
  static uint64_t SumOf(const Identity& identity) noexcept;
  bool IsSameCode(const PyLayout& layout, uintptr_t code,
                  const Identity& known) noexcept;
  static uint32_t PlaceOf(uintptr_t frame) noexcept;

  // Counted from -1, whose frame is 0 and whose key that of no stack.
  const Link& At(int link) const noexcept { return links_[link + 1]; }
  Link& At(int link) noexcept { return links_[link + 1]; }
  Key& KeyAt(int link) noexcept { return keys_[link + 1]; }
  int Known(uintptr_t frame) const noexcept;
  bool LooksSame(const Offsets& at, const Link* link) const noexcept;
  template <FrameKind kKind>
  const Link* FirstToDiffer(const Offsets& at, const PyLayout& layout,
                            const Link* link) noexcept;
  template <FrameKind kKind>
  bool IsSameWithIdentity(const PyLayout& layout, int link) noexcept;
  DSTRACE_COLD bool IsSameWithoutVersion(const PyLayout& layout,
                                         int link) noexcept;
  bool HasSameIdentity(const PyLayout& layout, int link,
                       uintptr_t code) noexcept;
  template <FrameKind kKind>
  DSTRACE_COLD uint64_t TakeIdentity(const PyLayout& layout, int link) noexcept;
  template <FrameKind kKind>
  bool WalkFrom(const PyLayout& layout, uintptr_t frame) noexcept;
  template <FrameKind kKind>
  void Push(const PyLayout& layout, uintptr_t frame) noexcept;
  template <FrameKind kKind>
  Key TakeFrom(const PyLayout& layout, uintptr_t top) noexcept;
  [[gnu::noinline]] Key TakeOlder(const PyLayout& layout,
                                  uintptr_t top) noexcept;

  int count_;
  bool truncated_;
  bool has_checked_;
  int fresh_count_;
  const PyLayout* layout_;   // of the last Take(); null: no Python
  uint16_t place_[kPlaces];  // link + 1; 0: none
  uintptr_t fresh_[kMaxLinks];
  // The first ones are never written: the caller of the outermost frame.
  alignas(64) Link links_[1 + kMaxLinks];
  Key keys_[1 + kMaxLinks];         // of a link and all around it
  Identity identities_[kMaxLinks];  // where the version says nothing
  uint8_t flags_[kMaxLinks];        // before 3.12, see FlagOf()
  Checked checked_;
};

static_assert(std::is_trivially_default_constructible_v<PythonChain>);
static_assert(std::is_trivially_destructible_v<PythonChain>);

}  // namespace dstrace::stacks

#endif  // DSTRACE_PRELOAD_STACKS_PYTHON_CHAIN_H_
