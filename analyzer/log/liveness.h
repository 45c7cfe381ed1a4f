// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_LIVENESS_H_
#define DSTRACE_ANALYZER_LOG_LIVENESS_H_

#include <cstdint>
#include <string>

#include "analyzer/log/file.h"

namespace dstrace::log {

// Whether process `pid` of `host` is this machine's and has `file` open or
// mapped, that is, still writes it. False where that cannot be seen.
// Thread-safe.
bool IsBeingWritten(const File& file, const std::string& host, uint32_t pid);

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_LIVENESS_H_
