// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/python_chain.h"

#include "preload/stacks/python_runtime.h"

namespace dstrace::stacks {
namespace {

constexpr uint64_t kOdd[] = {0x9e3779b97f4a7c15u, 0xd6e8feb86659fd93u,
                             0xa0761d6478bd642fu, 0xe7037ed1a0b428dbu};

// For frames that have no code object to tell apart: always the same.
constexpr uint32_t kNoVersion = 0;

// The two halves of the product: every bit of both goes into the middle.
uint64_t Fold(uint64_t a, uint64_t b) noexcept {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Around a frame that is `where` in a code object known as `what`.
PythonChain::Key Around(const PythonChain::Key& outer, uint64_t where,
                        uint64_t what) noexcept {
  return {Fold(where ^ kOdd[0], outer.low ^ kOdd[1] ^ what),
          Fold(what ^ kOdd[2], outer.high ^ kOdd[3] ^ where)};
}

// The byte of a frame that, beside the words, says what it is: whether its
// evaluation loop begins with it (3.11), or whose it is (3.12 on).
uint32_t FlagOffset(const PyLayout& layout) noexcept {
  switch (layout.frame_kind) {
    case FrameKind::kFrameObject:
      return layout.frame_previous;  // none; this one is compared anyway
    case FrameKind::kEntryFlag:
      return layout.frame_entry;
    case FrameKind::kShim:
      break;
  }
  return layout.frame_owner;
}

// Where the code object that a frame refers to keeps its version.
uintptr_t VersionOf(uintptr_t reference, uint32_t offset) noexcept {
  return (reference & ~kReferenceTags) + offset;
}

}  // namespace

// What is compared of a frame: read once a walk, kept in registers.
struct PythonChain::Offsets {
  explicit Offsets(const PyLayout& layout) noexcept
      : code(layout.frame_code),
        instruction(layout.frame_instruction),
        previous(layout.frame_previous),
        flag(FlagOffset(layout)),
        version(layout.code_version) {}

  const uint32_t code;
  const uint32_t instruction;
  const uint32_t previous;
  const uint32_t flag;
  const uint32_t version;
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

// Code objects and a file name that were found unchanged in this walk: at the
// last event all links of the chain held at once, so what holds for one link
// holds for all that have the same address.
struct PythonChain::Checked {
  static constexpr size_t kCodes = 8;
  static size_t PlaceOf(uintptr_t code) noexcept { return code / 64 % kCodes; }

  uintptr_t codes[kCodes] = {};
  uintptr_t file = 0;
};

// The caller knows that the link's frame is on the stack.
inline bool PythonChain::IsSame(const PyLayout& layout, const Offsets& at,
                                int index, Checked& checked) const noexcept {
  const Link& link = At(index);
  const uintptr_t frame = link.frame;
  const uintptr_t caller = At(index - 1).frame;
  const uintptr_t difference =  // one branch for all
      (Load<uintptr_t>(frame + at.instruction) ^ link.instruction) |
      (Load<uintptr_t>(frame + at.code) ^ link.code) |
      (Load<uintptr_t>(frame + at.previous) ^ caller) |
      (Load<uint8_t>(frame + at.flag) ^ link.flag);
  if (difference != 0) return false;
  if (__builtin_expect(link.version != kNoVersion, 1)) {
    return Load<uint32_t>(VersionOf(link.code, at.version)) == link.version;
  }
  if (!link.is_code) return true;
  const uintptr_t code = meanings_[index].code;
  const size_t place = Checked::PlaceOf(code);
  if (checked.codes[place] == code) return true;
  if (!IsSameCode(layout, code, identities_[index], checked)) return false;
  checked.codes[place] = code;
  return true;
}

// Field by field: most differences show in the first.
bool PythonChain::IsSameCode(const PyLayout& layout, uintptr_t code,
                             const Identity& known, Checked& checked) noexcept {
  const uintptr_t text_hash = layout.text_length + sizeof(uintptr_t);
  const auto file = Load<uintptr_t>(code + layout.code_file);
  if (Load<uintptr_t>(code + layout.code_lines) != known.lines ||
      Load<uintptr_t>(code + layout.code_name) != known.name ||
      Load<uint32_t>(code + layout.code_first_line) != known.first_line ||
      Load<uint64_t>(known.name + text_hash) != known.name_hash ||
      Load<uint64_t>(known.lines + layout.bytes_size) != known.lines_size) {
    return false;
  }
  if (file != checked.file && !known.file.Holds(layout, file)) return false;
  checked.file = file;
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
bool PythonChain::WalkFrom(const PyLayout& layout, uintptr_t frame) noexcept {
  const Offsets at(layout);
  Checked checked;
  fresh_count_ = 0;
  int kept = 0;
  while (frame != 0) {
    const int first = Known(frame);
    int link = first;
    while (link >= 0 && IsSame(layout, at, link, checked)) --link;
    if (first >= 0 && link < 0) {
      kept = first + 1;
      break;
    }
    // Those that looked the same lie within one that does not.
    for (int i = first; i > link; --i) {
      if (fresh_count_ == kMaxLinks) return false;
      fresh_[fresh_count_++] = At(i).frame;
    }
    if (first >= 0) frame = At(link).frame;
    if (fresh_count_ == kMaxLinks) return false;
    fresh_[fresh_count_++] = frame;
    frame = Load<uintptr_t>(frame + at.previous);
  }
  count_ = kept;
  return true;
}

void PythonChain::Push(const PyLayout& layout, uintptr_t frame) noexcept {
  const int index = count_++;
  const Key outer = index == 0 ? Key{} : keys_[index - 1];
  place_[PlaceOf(frame)] = static_cast<uint16_t>(index + 1);
  const RawFrame meaning = meanings_[index] = ReadFrame(layout, frame);
  Link& link = At(index);
  link.frame = frame;
  link.code = Load<uintptr_t>(frame + layout.frame_code);
  link.instruction = Load<uintptr_t>(frame + layout.frame_instruction);
  link.flag = Load<uint8_t>(frame + FlagOffset(layout));
  link.is_code = meaning.role != RawFrame::Role::kEndsLoop;
  link.version = kNoVersion;
  if (!link.is_code) {
    keys_[index] = Around(outer, kOdd[2], kOdd[3]);
    return;
  }
  uint64_t what = 0;
  if (layout.code_version != 0) {
    what = link.version =
        Load<uint32_t>(VersionOf(link.code, layout.code_version));
  }
  if (link.version == kNoVersion) {
    identities_[index] = IdentityOf(layout, meaning.code);
    what = SumOf(identities_[index]);
  }
  const uint64_t where = meaning.code + meaning.lasti * kOdd[1];
  keys_[index] = meaning.role == RawFrame::Role::kHidden
                     ? outer
                     : Around(outer, where, what * 2 + meaning.entry);
}

PythonChain::Key PythonChain::Take() noexcept {
  // What lies beyond the outermost link of a stack that was cut is not known.
  if (truncated_) count_ = 0;
  truncated_ = false;
  links_read_ = 0;
  // Two to a line; the processor sees where a walk along lines leads.
  for (int i = 0; i < 8; i += 2) {
    runtime::Prefetch(reinterpret_cast<const char*>(links_ + count_) -
                      i * sizeof(Link));
  }
  const PythonRuntime* const python = FindPython();
  const uintptr_t top = python == nullptr ? 0 : ThisThreadsFrame(*python);
  if (top == 0) {
    count_ = 0;
    return {};
  }
  const PyLayout& layout = python->layout;
  if (!WalkFrom(layout, top)) {
    truncated_ = true;
    count_ = 0;
  }
  links_read_ = fresh_count_;
  for (int i = fresh_count_ - 1; i >= 0; --i) Push(layout, fresh_[i]);
  const Key key = keys_[count_ - 1];
  return truncated_ ? Around(key, kOdd[0], kOdd[0]) : key;
}

int PythonChain::Frames(PyFrame* out, int max, bool* truncated) const noexcept {
  FrameCollector frames(out, max);
  bool more = false;
  for (int i = count_ - 1; i >= 0 && !more; --i) {
    more = !frames.Add(meanings_[i]);
  }
  *truncated = more || truncated_;
  return frames.Finish(*truncated);
}

}  // namespace dstrace::stacks
