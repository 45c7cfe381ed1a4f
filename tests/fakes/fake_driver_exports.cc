// SPDX-License-Identifier: Apache-2.0
//
// libcuda.so.1's exports, and cuGetProcAddress over them. As with the real
// driver, the two ways lead to different addresses of the same function.
#include <cstring>

#include "tests/fakes/fake_driver.h"

#define FAKE_EXPORT __attribute__((visibility("default")))

namespace dstrace::fakes {
namespace {

enum Mode : uint8_t { kAny, kLegacy, kPerThread };

struct Entry {
  const char* symbol;
  const char* base;
  int since;
  Mode mode;
  void* function;
};

// A function of a CUDA to come, with other arguments than any known one.
CUresult FutureMemFree(CUdeviceptr, CUstream, unsigned int) {
  return kIllegalState;
}

const Entry kEntries[] = {
    {"cuMemFree_v3", "cuMemFree", 14000, kAny,
     reinterpret_cast<void*>(&FutureMemFree)},
#define DSTRACE_DRIVER_HOOK(symbol, base, since, stream, body, params, args) \
  {#symbol, #base, since, stream,                                            \
   reinterpret_cast<void*>(&::dstrace::fakes::symbol)},
#include "preload/hooks/hook_table.inc"
#define FAKE_DRIVER_EXTRA(symbol, base, since, params, args) \
  {#symbol, #base, since, kAny,                              \
   reinterpret_cast<void*>(&::dstrace::fakes::symbol)},
#include "tests/fakes/fake_driver_extra.inc"
};

const Entry* Find(const char* symbol, int version, uint64_t flags) {
  const bool per_thread = (flags & kProcAddressPerThreadStream) != 0;
  const Entry* best = nullptr;
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.base, symbol) != 0 || entry.since > version) continue;
    if (entry.mode != kAny && (entry.mode == kPerThread) != per_thread) {
      continue;
    }
    if (best == nullptr || entry.since > best->since) best = &entry;
  }
  return best;
}

}  // namespace

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int version,
                             uint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || pfn == nullptr) return kInvalidValue;
  *pfn = nullptr;
  const Entry* entry = Find(symbol, version, flags);
  if (status != nullptr) *status = entry == nullptr ? 1 : 0;
  if (entry == nullptr) return status == nullptr ? kNotFound : kOk;
  *pfn = entry->function;
  return kOk;
}
CUresult cuGetProcAddress(const char* symbol, void** pfn, int version,
                          uint64_t flags) {
  return cuGetProcAddress_v2(symbol, pfn, version, flags, nullptr);
}

}  // namespace dstrace::fakes

namespace dstrace::fakes::exported {

#define DSTRACE_DRIVER_HOOK(symbol, base, since, stream, body, params, args) \
  extern "C" FAKE_EXPORT CUresult symbol params {                            \
    return ::dstrace::fakes::symbol args;                                    \
  }
#include "preload/hooks/hook_table.inc"
#define FAKE_DRIVER_EXTRA(symbol, base, since, params, args) \
  extern "C" FAKE_EXPORT CUresult symbol params {            \
    return ::dstrace::fakes::symbol args;                    \
  }
#include "tests/fakes/fake_driver_extra.inc"

// What another library may ask without a context.
extern "C" FAKE_EXPORT int FakeDriverFigures(int device, uint64_t* used,
                                             uint64_t* total) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (device < 0 || device >= state.device_count) return kInvalidDevice;
  *used = state.devices[device].used;
  *total = state.total_bytes;
  return kOk;
}

// How often the driver refused to name a current device.
extern "C" FAKE_EXPORT int FakeDriverRefusals() {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  return state.refused_questions;
}

}  // namespace dstrace::fakes::exported
