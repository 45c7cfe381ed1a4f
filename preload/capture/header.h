// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_CAPTURE_HEADER_H_
#define DSTRACE_PRELOAD_CAPTURE_HEADER_H_

// Who this process is. Reads /proc and the environment, once per log.
// Thread-safety: reads the environment; call from the thread that opens the
// log.

#include <cstdint>
#include <string_view>

#include "preload/runtime/config.h"
#include "preload/runtime/text.h"
#include "proto/wire/encoder.h"

namespace dstrace::capture {

using Path = runtime::Text<4096>;

// `pattern` with %p, %r, %h, %% put in. Rank is the first rank variable that
// is set, "0" where none is.
[[nodiscard]] Path ExpandOutput(std::string_view pattern) noexcept;

// The launcher's rank of this process ("" where no rank variable is set).
[[nodiscard]] std::string_view Rank() noexcept;

// A Records.header field of at most 16 KiB; a longer command line is cut.
void PutProcessHeader(wire::Encoder& out, uint64_t monotonic_now,
                      const runtime::Config& config, bool crash_proof) noexcept;

}  // namespace dstrace::capture

#endif  // DSTRACE_PRELOAD_CAPTURE_HEADER_H_
