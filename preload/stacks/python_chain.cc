// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/python_chain.h"

#include <bit>

#include "preload/stacks/python_runtime.h"
#include "preload/stacks/quick_python.h"

namespace dstrace::stacks {
namespace {

constexpr uint64_t kOdd[] = {0x9e3779b97f4a7c15u, 0xd6e8feb86659fd93u,
                             0xa0761d6478bd642fu, 0xe7037ed1a0b428dbu};

// The two halves of the product: every bit of both goes into the middle.
uint64_t Fold(uint64_t a, uint64_t b) noexcept {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Around a frame that is `where` in a code object known as `what`. Both halves
// hold all of it; few constants, since each is ten bytes of code.
PythonChain::Key Around(const PythonChain::Key& outer, uint64_t where,
                        uint64_t what) noexcept {
  return {Fold(outer.low ^ where, kOdd[0] ^ what),
          Fold(outer.high ^ what, kOdd[1] ^ where)};
}

// An instruction of a code object: addresses have 47 bits.
uint64_t Where(uintptr_t code, uint32_t lasti) noexcept {
  return code ^ std::rotl(uint64_t{lasti}, 47);
}
constexpr uint64_t kAtLoopsEnd = 1;  // no code lies there
constexpr uint64_t kCut = 2;

// What says of a frame of 3.11, beside the words, what it is: whether its
// evaluation loop begins with it. Before there is no such thing; from 3.12 on a
// frame that ends a loop is told by its code: one that no other frame runs.
template <FrameKind kKind>
uint8_t FlagOf(const PyLayout& layout, uintptr_t frame) noexcept {
  return kKind == FrameKind::kEntryFlag
             ? Load<uint8_t>(frame + layout.frame_entry)
             : 0;
}

uintptr_t AddressOf(const uint32_t& number) noexcept {
  return reinterpret_cast<uintptr_t>(&number);
}

// The code object that a frame refers to.
uintptr_t CodeOf(uintptr_t reference) noexcept {
  return reference & ~kReferenceTags;
}

DSTRACE_COLD const PyLayout* AskForTopFrame(uintptr_t* top) noexcept {
  const PythonRuntime* const python = FindPython();
  *top = python == nullptr ? 0 : ThisThreadsFrame(*python);
  return python == nullptr ? nullptr : &python->layout;
}

inline const PyLayout* TopFrameAndLayout(uintptr_t* top) noexcept {
  return __builtin_expect(QuickTopFrame(top), 1) ? g_quick_python.layout
                                                 : AskForTopFrame(top);
}

}  // namespace

// What is compared of a frame: read once a walk, kept in registers.
struct PythonChain::Offsets {
  explicit Offsets(const PyLayout& layout) noexcept
      : code(layout.frame_code),
        instruction(layout.frame_instruction),
        previous(layout.frame_previous) {}

  const uintptr_t code;
  const uintptr_t instruction;
  const uintptr_t previous;
};

PythonChain::Identity PythonChain::IdentityOf(const PyLayout& layout,
                                              uintptr_t code) noexcept {
  const uintptr_t text_hash = layout.text_length + sizeof(uintptr_t);
  Identity found;
  found.name = Load<uintptr_t>(code + layout.code_name);
  found.lines = Load<uintptr_t>(code + layout.code_lines);
  found.name_hash = Load<uint64_t>(found.name + text_hash);
  found.file.Take(layout, Load<uintptr_t>(code + layout.code_file));
  found.lines_size = Load<uint64_t>(found.lines + layout.bytes_size);
  found.first_line = Load<uint32_t>(code + layout.code_first_line);
  return found;
}

uint64_t PythonChain::SumOf(const Identity& identity) noexcept {
  const uint64_t numbers = identity.lines_size << 32 ^ identity.first_line;
  return Fold(identity.name ^ kOdd[0], identity.lines ^ kOdd[1]) +
         Fold(identity.name_hash ^ kOdd[2], identity.file.Sum() ^ kOdd[3]) +
         numbers * kOdd[0];
}

// Whether the frame and its code object look as they did; false where there is
// an identity to look at. The caller knows that the link's frame is on the
// stack. One branch for the frame: an event finds the branch predictor as cold
// as the caches. One for the code object, which is not to be looked at if the
// frame does not refer to it.
[[gnu::always_inline]] inline bool PythonChain::LooksSame(
    const Offsets& at, const Link* link) const noexcept {
  const uintptr_t frame = link->frame;
  const uintptr_t difference =
      (Load<uintptr_t>(frame + at.instruction) ^ link->instruction) |
      (Load<uint32_t>(frame + at.code) ^ link->code) |
      (Load<uintptr_t>(frame + at.previous) ^ link[-1].frame);
  if (__builtin_expect(difference != 0, 0)) return false;
  return Load<uint32_t>(link->there) == link->version;
}

inline bool PythonChain::HasSameIdentity(const PyLayout& layout, int index,
                                         uintptr_t code) noexcept {
  if (!has_checked_) checked_ = {};
  has_checked_ = true;
  const size_t place = Checked::PlaceOf(code);
  if (checked_.codes[place] == code) return true;
  if (!IsSameCode(layout, code, identities_[index])) return false;
  checked_.codes[place] = code;
  return true;
}

// A code object without a version: before 3.12, and where its counter was used
// up.
template <FrameKind kKind>
inline bool PythonChain::IsSameWithIdentity(const PyLayout& layout,
                                            int index) noexcept {
  const Link& link = At(index);
  const uintptr_t code =
      kKind == FrameKind::kShim ? identities_[index].code : link.there;
  const uintptr_t difference =
      (Load<uintptr_t>(link.frame + layout.frame_instruction) ^
       link.instruction) |
      (Load<uintptr_t>(link.frame + layout.frame_code) ^ code) |
      (Load<uintptr_t>(link.frame + layout.frame_previous) ^
       At(index - 1).frame) |
      (FlagOf<kKind>(layout, link.frame) ^ flags_[index]);
  return difference == 0 && HasSameIdentity(layout, index, CodeOf(code));
}

bool PythonChain::IsSameWithoutVersion(const PyLayout& layout,
                                       int index) noexcept {
  return IsSameWithIdentity<FrameKind::kShim>(layout, index);
}

// From a link outward; the root, which is no link, where none differs.
template <FrameKind kKind>
[[gnu::always_inline]] inline const PythonChain::Link*
PythonChain::FirstToDiffer(const Offsets& at, const PyLayout& layout,
                           const Link* link) noexcept {
  for (; link != links_; --link) {
    const auto index = static_cast<int>(link - links_) - 1;
    if constexpr (kKind != FrameKind::kShim) {
      if (!IsSameWithIdentity<kKind>(layout, index)) break;
    } else if (__builtin_expect(!LooksSame(at, link), 0)) {
      if (link->there != AddressOf(kNotThere)) break;
      if (!IsSameWithoutVersion(layout, index)) break;
    }
  }
  return link;
}

// Field by field: most differences show in the first.
bool PythonChain::IsSameCode(const PyLayout& layout, uintptr_t code,
                             const Identity& known) noexcept {
  const uintptr_t text_hash = layout.text_length + sizeof(uintptr_t);
  const auto file = Load<uintptr_t>(code + layout.code_file);
  if (Load<uintptr_t>(code + layout.code_lines) != known.lines ||
      Load<uintptr_t>(code + layout.code_name) != known.name ||
      Load<uint32_t>(code + layout.code_first_line) != known.first_line ||
      Load<uint64_t>(known.name + text_hash) != known.name_hash ||
      Load<uint64_t>(known.lines + layout.bytes_size) != known.lines_size) {
    return false;
  }
  if (file != checked_.file && !known.file.Holds(layout, file)) return false;
  checked_.file = file;
  // Without a version the counter of the interpreter was used up.
  return layout.code_version == 0 ||
         Load<uint32_t>(code + layout.code_version) == kNoVersion;
}

uint32_t PythonChain::PlaceOf(uintptr_t frame) noexcept {
  static_assert(kPlaces == 1 << 9);
  return static_cast<uint32_t>((frame >> 3) * kOdd[0] >> (64 - 9));
}

inline int PythonChain::Known(uintptr_t frame) const noexcept {
  const int link = place_[PlaceOf(frame)] - 1;
  return link >= 0 && link < count_ && At(link).frame == frame ? link : -1;
}

// Collects the frames that must be read, innermost first, and leaves those
// links that hold. False: there are more than fit.
template <FrameKind kKind>
[[gnu::always_inline]] inline bool PythonChain::WalkFrom(
    const PyLayout& layout, uintptr_t frame) noexcept {
  const Offsets at(layout);
  has_checked_ = false;
  int fresh = 0;
  int kept = 0;
  while (frame != 0) {
    const int first = Known(frame);
    if (first >= 0) {
      const Link* const last = &At(first);
      const Link* const link = FirstToDiffer<kKind>(at, layout, last);
      if (link == links_) {
        kept = first + 1;
        break;
      }
      // Those that looked the same lie within one that does not.
      for (const Link* inner = last; inner != link; --inner) {
        if (fresh == kMaxLinks) return false;
        fresh_[fresh++] = inner->frame;
      }
      frame = link->frame;
    }
    if (fresh == kMaxLinks) return false;
    fresh_[fresh++] = frame;
    frame = Load<uintptr_t>(frame + at.previous);
  }
  fresh_count_ = fresh;
  count_ = kept;
  return true;
}

template <FrameKind kKind>
[[gnu::always_inline]] inline void PythonChain::Push(const PyLayout& layout,
                                                     uintptr_t frame) noexcept {
  const int index = count_++;
  place_[PlaceOf(frame)] = static_cast<uint16_t>(index + 1);
  const RawFrame meaning = ReadFrameOf<kKind>(layout, frame);
  Link& link = At(index);
  link.frame = frame;
  link.code = Load<uint32_t>(frame + layout.frame_code);
  link.instruction = Load<uintptr_t>(frame + layout.frame_instruction);
  link.version = kNoVersion;
  link.there = AddressOf(link.version);
  const Key& outer = KeyAt(index - 1);
  uint64_t where = kAtLoopsEnd;
  uint64_t what = 0;
  if (meaning.role != RawFrame::Role::kEndsLoop) {
    uint64_t version = kNoVersion;
    if constexpr (kKind == FrameKind::kShim) {
      link.there = meaning.code + layout.code_version;
      link.version = Load<uint32_t>(link.there);
      version = link.version;
    }
    where = Where(meaning.code, meaning.lasti);
    what = version << 1 | meaning.entry;
    if (__builtin_expect(version == kNoVersion, kKind != FrameKind::kShim)) {
      flags_[index] = FlagOf<kKind>(layout, frame);
      what ^= TakeIdentity<kKind>(layout, index) << 1;
    }
  }
  KeyAt(index) = meaning.role == RawFrame::Role::kHidden
                     ? outer
                     : Around(outer, where, what);
}

template <FrameKind kKind>
uint64_t PythonChain::TakeIdentity(const PyLayout& layout, int index) noexcept {
  Link& link = At(index);
  const auto code = Load<uintptr_t>(link.frame + layout.frame_code);
  identities_[index] = IdentityOf(layout, CodeOf(code));
  identities_[index].code = code;
  link.version = kSeeIdentity;
  link.there = kKind == FrameKind::kShim ? AddressOf(kNotThere) : code;
  return SumOf(identities_[index]);
}

template <FrameKind kKind>
[[gnu::always_inline]] inline PythonChain::Key PythonChain::TakeFrom(
    const PyLayout& layout, uintptr_t top) noexcept {
  if (__builtin_expect(!WalkFrom<kKind>(layout, top), 0)) {
    truncated_ = true;
    count_ = 0;
    fresh_count_ = kMaxLinks;
  }
  for (int i = fresh_count_ - 1; i >= 0; --i) Push<kKind>(layout, fresh_[i]);
  const Key key = KeyAt(count_ - 1);
  return __builtin_expect(truncated_, 0) ? Around(key, kCut, 0) : key;
}

// Before 3.12.
PythonChain::Key PythonChain::TakeOlder(const PyLayout& layout,
                                        uintptr_t top) noexcept {
  return layout.frame_kind == FrameKind::kFrameObject
             ? TakeFrom<FrameKind::kFrameObject>(layout, top)
             : TakeFrom<FrameKind::kEntryFlag>(layout, top);
}

PythonChain::Key PythonChain::Take() noexcept {
  // What lies beyond the outermost link of a stack that was cut is not known.
  if (__builtin_expect(truncated_, 0)) count_ = 0;
  truncated_ = false;
  fresh_count_ = 0;
  uintptr_t top = 0;
  const PyLayout* const layout = TopFrameAndLayout(&top);
  if (top == 0) {
    count_ = 0;
    return {};
  }
  layout_ = layout;
  if (__builtin_expect(layout->frame_kind != FrameKind::kShim, 0)) {
    return TakeOlder(*layout, top);
  }
  return TakeFrom<FrameKind::kShim>(*layout, top);
}

int PythonChain::Frames(PyFrame* out, int max, bool* truncated) const noexcept {
  FrameCollector frames(out, max);
  bool more = false;
  for (int i = count_ - 1; i >= 0 && !more; --i) {
    more = !frames.Add(ReadFrame(*layout_, At(i).frame));
  }
  *truncated = more || truncated_;
  return frames.Finish(*truncated);
}

}  // namespace dstrace::stacks
