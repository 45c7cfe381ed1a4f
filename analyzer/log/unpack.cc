// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/unpack.h"

#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace dstrace::log {
namespace {

constexpr std::array<uint8_t, 4> kMagic = {0x28, 0xb5, 0x2f, 0xfd};
constexpr size_t kLongestHeader = 18;
// Zeros in place of a damaged frame: what a writer of ours may have had in it,
// and the alignment of chunks.
constexpr uint64_t kLongestGap = 64 << 20;
constexpr uint64_t kChunkBytes = 65536;
// TraceReader lists fewer; a file full of damage must not fill the memory.
constexpr size_t kMaxNotes = 100;

bool IsZero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](uint8_t byte) { return byte == 0; });
}

class Unpacker {
 public:
  Unpacker(const File& packed, int to)
      : packed_(packed),
        to_(to),
        context_(ZSTD_createDCtx(), ZSTD_freeDCtx),
        input_(ZSTD_DStreamInSize()),
        output_(ZSTD_DStreamOutSize()) {}

  absl::StatusOr<Unpacked> Run();

 private:
  enum class Outcome { kWhole, kCutOff, kDamaged };

  absl::StatusOr<Outcome> UnpackFrame();
  // What the frame at at_ says it holds; 0: it does not say.
  absl::StatusOr<uint64_t> DeclaredSize() const;
  absl::Status Write(std::span<const uint8_t> bytes);
  absl::Status LeaveOut(uint64_t frame, uint64_t start, uint64_t declared);
  absl::StatusOr<uint64_t> FindFrame(uint64_t from);
  void NoteCutOff(uint64_t start, uint64_t declared);
  void Note(const std::string& text);
  [[nodiscard]] absl::Status TooLarge() const;

  const File& packed_;
  const int to_;
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context_;
  std::vector<uint8_t> input_;
  std::vector<uint8_t> output_;
  uint64_t at_ = 0;       // the next byte of the compressed file
  bool any_ = false;      // something could be unpacked
  const char* why_ = "";  // of the last kDamaged
  Unpacked unpacked_;
};

absl::StatusOr<Unpacked> Unpacker::Run() {
  if (context_ == nullptr) return absl::ResourceExhaustedError("no memory");
  while (at_ < packed_.size()) {
    const uint64_t frame = at_;
    const uint64_t start = unpacked_.size;
    const auto declared = DeclaredSize();
    if (!declared.ok()) return declared.status();
    if (*declared > kMaxUnpackedBytes - start) return TooLarge();
    const auto outcome = UnpackFrame();
    if (!outcome.ok()) return outcome.status();
    if (*outcome == Outcome::kCutOff) NoteCutOff(start, *declared);
    if (*outcome == Outcome::kCutOff) break;
    any_ |= *outcome == Outcome::kWhole;
    if (*outcome == Outcome::kWhole) continue;
    const absl::Status status = LeaveOut(frame, start, *declared);
    if (!status.ok()) return status;
  }
  if (!any_) {
    return absl::DataLossError(absl::StrCat(packed_.path(), ": ",
                                            unpacked_.notes.front(),
                                            "; nothing can be read"));
  }
  // The end may be zeros that were not written.
  if (ftruncate(to_, static_cast<off_t>(unpacked_.size)) != 0) {
    return absl::UnavailableError(
        absl::StrCat(packed_.path(), ": no memory to unpack it"));
  }
  return std::move(unpacked_);
}

absl::StatusOr<uint64_t> Unpacker::DeclaredSize() const {
  std::array<uint8_t, kLongestHeader> header{};
  const auto got = packed_.ReadAt(at_, header);
  if (!got.ok()) return got.status();
  const uint64_t size = ZSTD_getFrameContentSize(header.data(), *got);
  const bool known =
      size != ZSTD_CONTENTSIZE_UNKNOWN && size != ZSTD_CONTENTSIZE_ERROR;
  return known ? size : 0;
}

absl::StatusOr<Unpacker::Outcome> Unpacker::UnpackFrame() {
  ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only);
  for (;;) {
    const auto got = packed_.ReadAt(at_, input_);
    if (!got.ok()) return got.status();
    if (*got == 0) return Outcome::kCutOff;
    ZSTD_inBuffer in = {input_.data(), *got, 0};
    ZSTD_outBuffer out = {};
    do {
      out = {output_.data(), output_.size(), 0};
      const size_t left = ZSTD_decompressStream(context_.get(), &out, &in);
      if (ZSTD_isError(left)) {
        at_ += in.pos;
        why_ = ZSTD_getErrorName(left);
        return Outcome::kDamaged;
      }
      const absl::Status status = Write({output_.data(), out.pos});
      if (!status.ok()) return status;
      if (left == 0) {
        at_ += in.pos;
        return Outcome::kWhole;
      }
    } while (in.pos < in.size || out.pos == out.size);
    at_ += in.pos;
  }
}

absl::Status Unpacker::Write(std::span<const uint8_t> bytes) {
  if (bytes.size() > kMaxUnpackedBytes - unpacked_.size) return TooLarge();
  const bool hole = IsZero(bytes);
  for (size_t done = 0; done < bytes.size() && !hole;) {
    const ssize_t wrote = pwrite(to_, bytes.data() + done, bytes.size() - done,
                                 static_cast<off_t>(unpacked_.size + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      return absl::UnavailableError(absl::StrCat(
          packed_.path(), ": cannot be unpacked: ", std::strerror(errno)));
    }
    done += static_cast<size_t>(wrote);
  }
  unpacked_.size += bytes.size();
  return absl::OkStatus();
}

// Takes back what came of the frame and goes on at the next one.
absl::Status Unpacker::LeaveOut(uint64_t frame, uint64_t start,
                                uint64_t declared) {
  const uint64_t bad = at_;
  const auto next = FindFrame(frame + 1);
  if (!next.ok()) return next.status();
  at_ = *next;
  const bool keep_place =
      at_ < packed_.size() && declared > 0 && declared <= kLongestGap;
  const uint64_t gap =
      keep_place ? (declared + kChunkBytes - 1) / kChunkBytes * kChunkBytes : 0;
  if (gap > kMaxUnpackedBytes - start) return TooLarge();
  if (ftruncate(to_, static_cast<off_t>(start)) != 0) {
    return absl::UnavailableError(
        absl::StrCat(packed_.path(), ": cannot be unpacked"));
  }
  unpacked_.size = start + gap;
  Note(absl::StrCat("compressed byte ", bad, ": ", why_, "; the ", at_ - frame,
                    " bytes from byte ", frame, " on are left out"));
  return absl::OkStatus();
}

// The next place that looks like a frame; the end of the file if there is none.
absl::StatusOr<uint64_t> Unpacker::FindFrame(uint64_t from) {
  while (from < packed_.size()) {
    const auto got = packed_.ReadAt(from, input_);
    if (!got.ok()) return got.status();
    const auto end = input_.begin() + static_cast<ptrdiff_t>(*got);
    const auto found =
        std::search(input_.begin(), end, kMagic.begin(), kMagic.end());
    if (found != end) {
      return from + static_cast<uint64_t>(found - input_.begin());
    }
    if (*got < kMagic.size()) break;
    from += *got - (kMagic.size() - 1);
  }
  return packed_.size();
}

void Unpacker::NoteCutOff(uint64_t start, uint64_t declared) {
  any_ |= unpacked_.size > start;
  const uint64_t came = unpacked_.size - start;
  std::string lost;
  if (declared > came) lost = absl::StrCat(", ", declared - came, " are lost");
  Note(absl::StrCat("compressed byte ", at_,
                    ": the file is cut off; the trace is read up to its byte ",
                    unpacked_.size, lost));
}

void Unpacker::Note(const std::string& text) {
  if (unpacked_.notes.size() < kMaxNotes) unpacked_.notes.push_back(text);
}

absl::Status Unpacker::TooLarge() const {
  return absl::ResourceExhaustedError(absl::StrCat(
      packed_.path(), ": compressed byte ", at_, ": more than ",
      kMaxUnpackedBytes >> 30,
      " GiB, which is the most that is unpacked in memory; unpack it first: "
      "zstd -d"));
}

}  // namespace

bool IsCompressed(std::span<const uint8_t> start) {
  return start.size() >= kMagic.size() &&
         std::equal(kMagic.begin(), kMagic.end(), start.begin());
}

absl::StatusOr<Unpacked> Unpack(const File& packed, int to) {
  return Unpacker(packed, to).Run();
}

}  // namespace dstrace::log
