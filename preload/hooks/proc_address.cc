// SPDX-License-Identifier: Apache-2.0
#include "preload/hooks/proc_address.h"

#include <cstring>

#include "preload/capture/recorder.h"
#include "preload/hooks/real.h"
#include "preload/runtime/guard.h"

namespace dstrace::hooks {
namespace {

// The newest CUDA whose functions hook_table.inc was checked against.
constexpr int kNewestKnown = 13000;

bool IsWrapper(const void* function) noexcept {
  for (size_t i = 0; i < kHookCount; ++i) {
    if (WrapperOf(static_cast<Hook>(i)) == function) return true;
  }
  return false;
}

bool Matches(const HookInfo& info, const char* symbol,
             uint64_t flags) noexcept {
  if (info.layer != Layer::kDriver) return false;
  // The base name is what the documentation asks for; drivers that also know
  // exported names answer with the same functions.
  if (std::strcmp(info.symbol, symbol) == 0) return true;
  if (std::strcmp(info.base, symbol) != 0) return false;
  if (info.stream == StreamMode::kAny) return true;
  const bool per_thread = (flags & kProcAddressPerThreadStream) != 0;
  return (info.stream == StreamMode::kPerThread) == per_thread;
}

// The newest row for `symbol` not newer than `version`, or kCount.
Hook NewestRow(const char* symbol, int version, uint64_t flags) noexcept {
  Hook best = Hook::kCount;
  for (size_t i = 0; i < kHookCount; ++i) {
    const HookInfo& info = kHooks[i];
    if (info.since > version || !Matches(info, symbol, flags)) continue;
    if (best == Hook::kCount || info.since >= Info(best).since) {
      best = static_cast<Hook>(i);
    }
  }
  return best;
}

bool IsHooked(const char* symbol, uint64_t flags) noexcept {
  return NewestRow(symbol, INT32_MAX, flags) != Hook::kCount;
}

// A version newer than the table may mean another function of that name, with
// other arguments. The driver itself says whether it is the one we know.
bool IsSameFunction(Hook hook, const char* symbol, const void* found,
                    int version, uint64_t flags,
                    const ProcAddressQuery& query) noexcept {
  if (version <= kNewestKnown) return true;
  return query.Find(symbol, kNewestKnown, flags) == found ||
         query.Find(symbol, Info(hook).since, flags) == found;
}

}  // namespace

void* ProcAddressQuery::Find(const char* symbol, int version,
                             uint64_t flags) const noexcept {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status = 0;
  const CUresult result = v2_ != nullptr
                              ? v2_(symbol, &found, version, flags, &status)
                              : v1_(symbol, &found, version, flags);
  return result == kCudaSuccess ? found : nullptr;
}

void* WrapDriverFunction(const char* symbol, void* found, int version,
                         uint64_t flags,
                         const ProcAddressQuery& query) noexcept {
  if (symbol == nullptr || found == nullptr || !IsHooked(symbol, flags) ||
      IsWrapper(found)) {
    return found;
  }
  runtime::Guard guard;
  const Hook hook = NewestRow(symbol, version, flags);
  if (hook == Hook::kCount ||
      !IsSameFunction(hook, symbol, found, version, flags, query)) {
    capture::CountLoss(capture::LossCause::kBypassed, symbol);
    return found;
  }
  OfferReal(hook, found);
  return WrapperOf(hook);
}

}  // namespace dstrace::hooks
