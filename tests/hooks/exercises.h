// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_HOOKS_EXERCISES_H_
#define DSTRACE_TESTS_HOOKS_EXERCISES_H_

// How each kind of hook is driven. Exercise<Body>(target, function) calls the
// function through the pointer it is given, which may have been found in any
// way, and checks the answers and what was recorded. Every body named in
// hook_table.inc has one; rows that share a body share it.

#include <gtest/gtest.h>

#include <cstring>

#include "preload/hooks/cuda_abi.h"
#include "preload/hooks/hook_id.h"
#include "tests/hooks/fake_recorder.h"

namespace dstrace::hooks::testing {

using capture::DeviceEvent;
using capture::DeviceKind;
using fakes::Recording;

// The public functions, called as any program calls them.
#define DSTRACE_DRIVER_HOOK(symbol, base, since, stream, body, params, args) \
  extern "C" CUresult symbol params;
#define DSTRACE_RUNTIME_HOOK(symbol, body, params, args) \
  extern "C" cudaError_t symbol params;
#define DSTRACE_NCCL_HOOK(symbol, body, params, args) \
  extern "C" ncclResult_t symbol params;
#include "preload/hooks/hook_table.inc"
extern "C" CUresult cuInit(unsigned int flags);
extern "C" CUresult cuCtxSetCurrent(CUcontext context);
extern "C" CUresult cuGraphCreate(CUgraph* graph, unsigned int flags);
extern "C" cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total);

struct Target {
  const char* symbol;
  Layer layer;
};

template <class T>
uint64_t Number(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uint64_t>(value);
  } else {
    return static_cast<uint64_t>(value);
  }
}

// The one event of that kind since the last call, by this function: a driver
// function's own, a runtime function's on the driver call beneath it.
inline DeviceEvent TakeEvent(const Target& target, DeviceKind kind) {
  DeviceEvent found;
  int count = 0;
  for (const DeviceEvent& event : FakeRecorderGet().events) {
    if (event.kind != kind) continue;
    ++count;
    found = event;
  }
  EXPECT_EQ(count, 1) << target.symbol;
  if (count > 0) {
    const char* name = found.api;
    if (target.layer != Layer::kDriver && found.label != nullptr) {
      EXPECT_STRNE(found.api, target.symbol);
      name = found.label;
    } else if (target.layer == Layer::kDriver) {
      EXPECT_EQ(found.label, nullptr);
    }
    EXPECT_STREQ(name, target.symbol);
    EXPECT_NE(found.time, 0u);
  }
  FakeRecorderClear();
  return found;
}

// Nothing of that kind was recorded.
inline void ExpectNoEvent(DeviceKind kind) {
  for (const DeviceEvent& event : FakeRecorderGet().events) {
    EXPECT_NE(event.kind, kind) << event.api;
  }
  FakeRecorderClear();
}

inline constexpr size_t kTooMuch = size_t{1} << 40;
inline constexpr int kInvalidValue = 1;
inline constexpr int kOutOfMemory = 2;

}  // namespace dstrace::hooks::testing

#endif  // DSTRACE_TESTS_HOOKS_EXERCISES_H_
