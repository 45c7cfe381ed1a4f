// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_RUNTIME_CONFIG_H_
#define DSTRACE_PRELOAD_RUNTIME_CONFIG_H_

// What the environment asks for, read once when the library is loaded.
//
// Thread-safety: immutable after ReadConfig().

#include <cstdint>
#include <limits>

namespace dstrace::runtime {

enum class StackMode : uint8_t { kNone, kPython, kFull };
enum class Follow : uint8_t { kAll, kRank0, kNone };

struct Config {
  // DSTRACE_OUTPUT; %p pid, %r rank, %h host.
  const char* output = "dstrace-%h-%r-%p.pb";
  StackMode stacks = StackMode::kFull;  // DSTRACE_STACKS=full|python|none
  Follow follow = Follow::kAll;         // DSTRACE_FOLLOW=all|rank0|none
  // With Follow::kNone: the process that was started, which alone records.
  int32_t followed_pid = 0;
  bool disabled = false;         // DSTRACE_DISABLE=1
  bool quiet = false;            // DSTRACE_QUIET=1: no line on stderr
  bool nvtx = true;              // DSTRACE_NVTX=0: NVTX stays untouched
  bool cupti = false;            // DSTRACE_CUPTI=1: cross-check
  uint64_t log_limit_bytes = 0;  // DSTRACE_LOG_LIMIT; 0: no limit
  // DSTRACE_STACK_LIMIT: how many different stacks are told apart.
  uint32_t stack_limit = std::numeric_limits<uint32_t>::max();
};

// Parses the environment; an unknown value is said once on stderr and the
// default stands.
void ReadConfig() noexcept;
const Config& GetConfig() noexcept;

}  // namespace dstrace::runtime

#endif  // DSTRACE_PRELOAD_RUNTIME_CONFIG_H_
