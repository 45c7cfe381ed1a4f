// SPDX-License-Identifier: Apache-2.0
#include "preload/hooks/hook_id.h"

#include <algorithm>
#include <array>

extern "C" {
#define DSTRACE_DRIVER_HOOK(symbol, ...) \
  [[gnu::visibility("hidden")]] extern const char dstrace_hook_##symbol[];
#define DSTRACE_RUNTIME_HOOK(symbol, ...) \
  [[gnu::visibility("hidden")]] extern const char dstrace_hook_##symbol[];
#define DSTRACE_TORCH_HOOK(symbol, ...) \
  [[gnu::visibility("hidden")]] extern const char dstrace_hook_##symbol[];
#define DSTRACE_NCCL_HOOK(symbol, ...) \
  [[gnu::visibility("hidden")]] extern const char dstrace_hook_##symbol[];
#define DSTRACE_CUPTI_HOOK(symbol, ...) \
  [[gnu::visibility("hidden")]] extern const char dstrace_hook_##symbol[];
#include "preload/hooks/hook_table.inc"
}

namespace dstrace::hooks {
namespace {

// Addresses only: the functions' types are the layers' own business.
const char* const kWrappers[kHookCount] = {
#define DSTRACE_DRIVER_HOOK(symbol, ...) dstrace_hook_##symbol,
#define DSTRACE_RUNTIME_HOOK(symbol, ...) dstrace_hook_##symbol,
#define DSTRACE_TORCH_HOOK(symbol, ...) dstrace_hook_##symbol,
#define DSTRACE_NCCL_HOOK(symbol, ...) dstrace_hook_##symbol,
#define DSTRACE_CUPTI_HOOK(symbol, ...) dstrace_hook_##symbol,
#include "preload/hooks/hook_table.inc"
};

constexpr bool ByName(Hook a, Hook b) noexcept {
  return std::string_view(Info(a).symbol) < std::string_view(Info(b).symbol);
}

constexpr std::array<Hook, kHookCount> SortByName() noexcept {
  std::array<Hook, kHookCount> sorted{};
  for (size_t i = 0; i < kHookCount; ++i) sorted[i] = static_cast<Hook>(i);
  std::sort(sorted.begin(), sorted.end(), ByName);
  return sorted;
}

constexpr std::array<Hook, kHookCount> kByName = SortByName();

}  // namespace

Hook FindHook(std::string_view symbol) noexcept {
  const auto* found =
      std::lower_bound(kByName.begin(), kByName.end(), symbol,
                       [](Hook hook, std::string_view name) {
                         return std::string_view(Info(hook).symbol) < name;
                       });
  if (found == kByName.end() || Info(*found).symbol != symbol) {
    return Hook::kCount;
  }
  return *found;
}

void* WrapperOf(Hook hook) noexcept {
  return const_cast<char*>(kWrappers[static_cast<size_t>(hook)]);
}

}  // namespace dstrace::hooks
