// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_LOG_LENIENT_PARSE_H_
#define DSTRACE_ANALYZER_LOG_LENIENT_PARSE_H_

#include <cstdint>
#include <span>

#include "google/protobuf/message.h"

namespace dstrace::log {

// Parses `bytes`. Where a `string` field is not UTF-8 (a command line may hold
// any bytes), which libprotobuf refuses, each offending byte reads as '?'.
// False: malformed. Thread-safe.
bool ParseLenient(google::protobuf::Message* message,
                  std::span<const uint8_t> bytes);

}  // namespace dstrace::log

#endif  // DSTRACE_ANALYZER_LOG_LENIENT_PARSE_H_
