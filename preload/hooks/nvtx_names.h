// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_NVTX_NAMES_H_
#define DSTRACE_PRELOAD_HOOKS_NVTX_NAMES_H_

// The handles that NVTX gives to the program: domains, registered strings, and
// ranges that start and end anywhere. All bounded; what does not fit has no
// name. Nothing is ever given back: a handle stays valid for ever.
//
// Thread-safety: thread-safe, no lock (a child of fork() may come at any time).

#include <cstdint>
#include <string_view>

namespace dstrace::hooks::nvtx {

// A domain is its name; null, NVTX's default domain, has none.
const char* AddDomain(const char* name) noexcept;

// Null where the room for strings is used up; counted as loss.
const char* AddString(const char* text) noexcept;

struct StartedRange {
  std::string_view name;
  std::string_view domain;
};

// Remembers the range under an id that is never 0.
uint64_t AddRange(StartedRange range) noexcept;
// Calls `visit(StartedRange)` for a range that is remembered, and forgets it.
template <class Visitor>
void TakeRange(uint64_t id, Visitor visit) noexcept;

namespace internal {
// Null if it is not (or no longer) known.
const StartedRange* FindRange(uint64_t id) noexcept;
void ForgetRange(uint64_t id) noexcept;
}  // namespace internal

template <class Visitor>
void TakeRange(uint64_t id, Visitor visit) noexcept {
  const StartedRange* range = internal::FindRange(id);
  if (range == nullptr) return;
  visit(*range);
  internal::ForgetRange(id);
}

}  // namespace dstrace::hooks::nvtx

#endif  // DSTRACE_PRELOAD_HOOKS_NVTX_NAMES_H_
