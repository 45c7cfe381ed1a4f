// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_DIAGNOSTICS_H_
#define DSTRACE_PRELOAD_RUNTIME_DIAGNOSTICS_H_

// The few lines dstrace may print into somebody else's stderr.
//
// Thread-safe. Async-signal-safe: write(2) only. errno is preserved.

#include <string_view>

namespace dstrace::runtime {

// Prints "dstrace: <text><detail>" in one write, unless DSTRACE_QUIET is set.
// Callers see to it that each message appears once per process.
void Say(std::string_view text, std::string_view detail = {}) noexcept;

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_DIAGNOSTICS_H_
