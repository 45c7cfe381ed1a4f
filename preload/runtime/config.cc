// SPDX-License-Identifier: Apache-2.0
#include "preload/runtime/config.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "preload/runtime/diagnostics.h"
#include "preload/runtime/text.h"

namespace dstrace::runtime {
namespace {

Config g_config;

std::string_view Env(const char* name) noexcept {
  const char* value = getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// Said once: the environment is read once.
void SayUnknown(const char* name, std::string_view value,
                std::string_view choices) noexcept {
  Text<256> text;
  text << name << "=" << value << " is not one of " << choices
       << "; using the default";
  Say(text.view());
}

void ReadStacks() noexcept {
  const std::string_view value = Env("DSTRACE_STACKS");
  if (value == "none") {
    g_config.stacks = StackMode::kNone;
  } else if (value == "python") {
    g_config.stacks = StackMode::kPython;
  } else if (!value.empty() && value != "full") {
    SayUnknown("DSTRACE_STACKS", value, "full, python, none");
  }
}

void ReadFollow() noexcept {
  const std::string_view value = Env("DSTRACE_FOLLOW");
  if (value == "rank0") {
    g_config.follow = Follow::kRank0;
  } else if (value == "none") {
    g_config.follow = Follow::kNone;
  } else if (!value.empty() && value != "all") {
    SayUnknown("DSTRACE_FOLLOW", value, "all, rank0, none");
  }
}

// The first process with DSTRACE_FOLLOW=none tells those after it, by fork or
// exec, that they are not meant. One that replaces itself keeps its number.
void FindFollowed() noexcept {
  constexpr char kVariable[] = "DSTRACE_FOLLOW_PID";
  if (g_config.follow != Follow::kNone) return;
  if (getenv(kVariable) == nullptr) {
    Text<16> own;
    own << static_cast<uint64_t>(getpid());
    setenv(kVariable, own.c_str(), 0);
  }
  g_config.followed_pid = getpid();
  // Not atoi(): built with glibc 2.38 it needs that.
  const std::string_view pid = Env(kVariable);
  std::from_chars(pid.data(), pid.data() + pid.size(), g_config.followed_pid);
}

// "2GiB", "256MiB", "1000000"; 0 where the text is not a size.
uint64_t ParseBytes(std::string_view text) noexcept {
  uint64_t value = 0;
  size_t at = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    if (value > std::numeric_limits<uint64_t>::max() / 100) return 0;
    value = value * 10 + static_cast<uint64_t>(text[at] - '0');
  }
  const std::string_view unit = Tail(text, at);
  int shift = 0;
  if (unit == "KiB" || unit == "K") {
    shift = 10;
  } else if (unit == "MiB" || unit == "M") {
    shift = 20;
  } else if (unit == "GiB" || unit == "G") {
    shift = 30;
  } else if (!unit.empty() && unit != "B") {
    return 0;
  }
  return value <= std::numeric_limits<uint64_t>::max() >> shift ? value << shift
                                                                : 0;
}

void ReadLogLimit() noexcept {
  const std::string_view value = Env("DSTRACE_LOG_LIMIT");
  if (value.empty()) return;
  g_config.log_limit_bytes = ParseBytes(value);
  if (g_config.log_limit_bytes == 0) {
    SayUnknown("DSTRACE_LOG_LIMIT", value, "sizes such as 256MiB, 2GiB");
  }
}

void ReadStackLimit() noexcept {
  const std::string_view value = Env("DSTRACE_STACK_LIMIT");
  if (value.empty()) return;
  const uint64_t limit = ParseBytes(value);
  if (limit == 0 || limit > g_config.stack_limit) {
    SayUnknown("DSTRACE_STACK_LIMIT", value, "numbers such as 100000");
    return;
  }
  g_config.stack_limit = static_cast<uint32_t>(limit);
}

}  // namespace

void ReadConfig() noexcept {
  g_config = Config();
  g_config.quiet = Env("DSTRACE_QUIET") == "1";
  g_config.disabled = Env("DSTRACE_DISABLE") == "1";
  g_config.cupti = Env("DSTRACE_CUPTI") == "1";
  g_config.nvtx = Env("DSTRACE_NVTX") != "0";
  if (const char* output = getenv("DSTRACE_OUTPUT");
      output != nullptr && *output != '\0') {
    g_config.output = output;
  }
  ReadStacks();
  ReadFollow();
  FindFollowed();
  ReadLogLimit();
  ReadStackLimit();
}

const Config& GetConfig() noexcept { return g_config; }

}  // namespace dstrace::runtime
