// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_HOOK_ID_H_
#define DSTRACE_PRELOAD_HOOKS_HOOK_ID_H_

// The rows of hook_table.inc as values.
//
// Thread-safety: everything here is constant.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dstrace::hooks {

enum class Layer : uint8_t { kDriver, kRuntime, kTorch, kNccl, kCupti };

// Which default stream a driver function means by stream 0.
enum class StreamMode : uint8_t { kAny, kLegacy, kPerThread };

enum class Hook : uint16_t {
#define DSTRACE_DRIVER_HOOK(symbol, ...) symbol,
#define DSTRACE_RUNTIME_HOOK(symbol, ...) symbol,
#define DSTRACE_TORCH_HOOK(symbol, ...) symbol,
#define DSTRACE_NCCL_HOOK(symbol, ...) symbol,
#define DSTRACE_CUPTI_HOOK(symbol, ...) symbol,
#include "preload/hooks/hook_table.inc"
  kCount,
};

inline constexpr size_t kHookCount = static_cast<size_t>(Hook::kCount);

struct HookInfo {
  const char* symbol;
  const char* base;  // driver only: its name for cuGetProcAddress
  int since;         // driver only: CUDA version
  Layer layer;
  StreamMode stream;
};

inline constexpr HookInfo kHooks[kHookCount] = {
#define DSTRACE_DRIVER_HOOK(symbol, base, since, stream, ...) \
  {#symbol, #base, since, Layer::kDriver, StreamMode::stream},
#define DSTRACE_RUNTIME_HOOK(symbol, ...) \
  {#symbol, nullptr, 0, Layer::kRuntime, StreamMode::kAny},
#define DSTRACE_TORCH_HOOK(symbol, ...) \
  {#symbol, nullptr, 0, Layer::kTorch, StreamMode::kAny},
#define DSTRACE_NCCL_HOOK(symbol, ...) \
  {#symbol, nullptr, 0, Layer::kNccl, StreamMode::kAny},
#define DSTRACE_CUPTI_HOOK(symbol, ...) \
  {#symbol, nullptr, 0, Layer::kCupti, StreamMode::kAny},
#include "preload/hooks/hook_table.inc"
};

constexpr const HookInfo& Info(Hook hook) noexcept {
  return kHooks[static_cast<size_t>(hook)];
}

// The hook of that exported name, or Hook::kCount.
Hook FindHook(std::string_view symbol) noexcept;

// Our own function for the hook; never what an earlier preload put there.
void* WrapperOf(Hook hook) noexcept;

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_HOOK_ID_H_
