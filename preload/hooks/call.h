// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_CALL_H_
#define DSTRACE_PRELOAD_HOOKS_CALL_H_

// What every wrapper does around the real function.
//
//   cudaMalloc (label "cudaMalloc")
//     cuMemAlloc_v2            -> the event, with that label
//     ... or nothing seen below -> cudaMalloc itself is the event
//
// A call is written down by the innermost hook that understands it: an outer
// one stays silent when a call of its own kind was recorded beneath it. So the
// runtime's call is a label on the driver's, and another preload that
// implements cudaMalloc by other means is seen as what it does.
//
// Thread-safety: all state is the calling thread's. Return value and errno are
// the real function's.

#include <cstdint>

#include "preload/capture/recorder.h"
#include "preload/hooks/cuda_abi.h"
#include "preload/hooks/cupti.h"
#include "preload/hooks/deep_bind.h"
#include "preload/hooks/driver_queries.h"
#include "preload/hooks/export.h"
#include "preload/hooks/hook_id.h"
#include "preload/hooks/memory_sampler.h"
#include "preload/hooks/ranges.h"
#include "preload/hooks/real.h"
#include "preload/runtime/guard.h"

namespace dstrace::hooks {

using capture::DeviceEvent;
using capture::DeviceKind;

// The calling thread's place in nested hooks.
struct CallState {
  const char* label;  // innermost runtime or NCCL function, null outside
  uint64_t seen;      // kinds recorded since the outermost hook, as bits
};
extern constinit thread_local CallState t_call
    __attribute__((tls_model("initial-exec")));

constexpr uint64_t BitOf(DeviceKind kind) noexcept {
  return uint64_t{1} << static_cast<unsigned>(kind);
}

// What a body may define; each has its own kKind as well.
struct Body {
  // A free is stamped before the real call, an allocation after it, so that a
  // reused address is never live twice.
  static constexpr bool kStampBefore = false;
  // Kinds which, recorded beneath, make this call no event of its own.
  static constexpr uint64_t kSame = 0;
  // True: never an event, only a label.
  static constexpr bool kLabelOnly = false;

  // Before the real call: what the arguments say. Also what a failure keeps.
  template <class... Args>
  static void Before(DeviceEvent&, const Args&...) noexcept {}
  // After success: what the real call has written.
  template <class... Args>
  static void After(DeviceEvent&, const Args&...) noexcept {}
  // After the real call, whatever its result.
  static void Done(int /*result*/) noexcept {}
  // True: nothing happened (the free of a null pointer).
  static bool Skip(const DeviceEvent&) noexcept { return false; }
};

// Only a label on the events beneath.
struct LabelOnly : Body {
  static constexpr DeviceKind kKind = DeviceKind::kUnknown;
  static constexpr bool kLabelOnly = true;
};

// What a caller is told when the real function is not to be found.
constexpr int MissingResult(Layer layer) noexcept {
  switch (layer) {
    case Layer::kDriver:
      return kCudaNotFound;
    case Layer::kNccl:
      return kNcclSystemError;
    default:
      return kCudaErrorUnknown;
  }
}

// Writes the finished event down.
template <class B>
void Record(DeviceEvent& event) noexcept {
  if (event.result != 0) {
    QueryMemory(event.free_bytes, event.total_bytes);
  } else if (B::Skip(event)) {
    return;
  }
  WriteKeptRanges();
  if (event.time == 0) event.time = capture::Now();
  capture::RecordDevice(event);
  t_call.seen |= BitOf(event.kind);
  SampleAfter(event);
  TellDeepBind();
}

// Runs `B` around `real`.
template <Hook kHook, class B, class Real, class... Args>
int RecordAround(Real* real, Args... args) noexcept {
  constexpr const HookInfo& kInfo = Info(kHook);
  DeviceEvent event;
  event.kind = B::kKind;
  event.api = kInfo.symbol;
  {
    runtime::Guard guard;
    B::Before(event, args...);
    if constexpr (B::kStampBefore) event.time = capture::Now();
  }
  const CallState outer = t_call;
  if constexpr (kInfo.layer != Layer::kDriver) t_call.label = kInfo.symbol;
  t_call.seen = 0;
  const int result = real(args...);
  {
    runtime::Guard guard;
    constexpr uint64_t kSame = B::kSame | BitOf(B::kKind);
    B::Done(result);
    if (!B::kLabelOnly && (t_call.seen & kSame) == 0) {
      event.label = kInfo.layer == Layer::kDriver ? outer.label : nullptr;
      event.result = result;
      if (result == 0) B::After(event, args...);
      Record<B>(event);
    }
  }
  if constexpr (kInfo.layer == Layer::kRuntime) {
    // Outside of the runtime's own locks, and only once CUDA is in use.
    if (outer.label == nullptr && t_call.seen != 0) {
      runtime::Guard guard;
      DescribeRuntime();
    }
  }
  const bool made_context =
      (t_call.seen & BitOf(DeviceKind::kContextCreate)) != 0;
  t_call.label = outer.label;
  t_call.seen |= outer.seen;
  // The outermost call: CUDA holds no lock, and its context is there.
  if (__builtin_expect(made_context && outer.label == nullptr, 0)) {
    StartCupti();
  }
  return result;
}

template <Hook kHook, class B, class... Args>
inline int Call(const void* caller, Args... args) noexcept {
  using Real = int(Args...);
  void* found = Info(kHook).layer == Layer::kRuntime
                    ? RealOfRuntime(kHook, caller)
                    : RealOf(kHook, caller);
  auto* real = reinterpret_cast<Real*>(found);
  if (__builtin_expect(real == nullptr, 0)) {
    return MissingResult(Info(kHook).layer);
  }
  // dstrace's own questions come through here too.
  if (runtime::t_line.inside) return real(args...);
  if constexpr (requires { B::template Run<kHook>(caller, real, args...); }) {
    return B::template Run<kHook>(caller, real, args...);
  } else {
    return RecordAround<kHook, B>(real, args...);
  }
}

}  // namespace dstrace::hooks

// The wrapper under a name nobody can preempt, and its public alias.
#define DSTRACE_MORE_ARGS(...) __VA_OPT__(, ) __VA_ARGS__
#define DSTRACE_DEFINE_HOOK(symbol, body, params, args)                  \
  extern "C" [[gnu::visibility(                                          \
      "hidden")]] int dstrace_hook_##symbol params noexcept {            \
    return ::dstrace::hooks::Call<::dstrace::hooks::Hook::symbol, body>( \
        __builtin_return_address(0) DSTRACE_MORE_ARGS args);             \
  }                                                                      \
  extern "C" DSTRACE_EXPORT __attribute__((                              \
      alias("dstrace_hook_" #symbol))) int symbol params noexcept;

#endif  // DSTRACE_PRELOAD_HOOKS_CALL_H_
