// SPDX-License-Identifier: Apache-2.0
#include "preload/hooks/real.h"

#include <dlfcn.h>
#include <link.h>

#include <span>

#include "preload/hooks/libc_functions.h"

namespace dstrace::hooks {

// constinit: hooks are called before any constructor of ours.
constinit std::atomic<void*> g_real[kSlotCount] = {};

namespace {

struct SlotInfo {
  const char* symbol;
  Layer layer;
};

constexpr SlotInfo kQueries[] = {
#define DSTRACE_QUERY_INFO(symbol, layer) {#symbol, Layer::layer},
    DSTRACE_QUERIES(DSTRACE_QUERY_INFO)
#undef DSTRACE_QUERY_INFO
};

SlotInfo SlotInfoOf(size_t slot) noexcept {
  if (slot < kHookCount) return {kHooks[slot].symbol, kHooks[slot].layer};
  return kQueries[slot - kHookCount];
}

std::span<const char* const> SonamesOf(Layer layer) noexcept {
  static constexpr const char* kDriver[] = {"libcuda.so.1"};
  static constexpr const char* kRuntime[] = {
      "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
  static constexpr const char* kTorch[] = {"libc10.so"};
  static constexpr const char* kNccl[] = {"libnccl.so.2"};
  switch (layer) {
    case Layer::kDriver:
      return kDriver;
    case Layer::kRuntime:
      return kRuntime;
    case Layer::kTorch:
      return kTorch;
    case Layer::kNccl:
      return kNccl;
  }
  return {};
}

// A function that is not merely our own wrapper under its public name.
void* UnlessOurs(size_t slot, void* found) noexcept {
  if (slot < kHookCount && found == WrapperOf(static_cast<Hook>(slot))) {
    return nullptr;
  }
  return found;
}

// In the library called `name` and those it links; never loads anything.
void* FindIn(const char* name, size_t slot) noexcept {
  const LibcFunctions& libc = Libc();
  if (libc.dlopen == nullptr || libc.dlclose == nullptr) return nullptr;
  void* handle = libc.dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* found = UnlessOurs(slot, libc.dlsym(handle, SlotInfoOf(slot).symbol));
  libc.dlclose(handle);
  return found;
}

void* FindForCaller(size_t slot, const void* caller) noexcept {
  const LibcFunctions& libc = Libc();
  if (caller == nullptr || libc.dladdr1 == nullptr) return nullptr;
  Dl_info info;
  link_map* map = nullptr;
  if (libc.dladdr1(caller, &info, reinterpret_cast<void**>(&map),
                   RTLD_DL_LINKMAP) == 0 ||
      map == nullptr || map->l_name == nullptr || map->l_name[0] == '\0') {
    return nullptr;  // the main program: step 1 has seen all it links
  }
  return FindIn(map->l_name, slot);
}

void* FindLinkedSlot(size_t slot, const void* caller) noexcept {
  const LibcFunctions& libc = Libc();
  if (libc.dlsym == nullptr) return nullptr;
  // libc takes "next" from the return address, which is in our library.
  void* found = libc.dlsym(RTLD_NEXT, SlotInfoOf(slot).symbol);
  if (found == nullptr) found = FindForCaller(slot, caller);
  return found;
}

void* Publish(size_t slot, void* real) noexcept {
  void* known = nullptr;
  // release: pairs with the acquire in RealOf(); on failure acquire, as the
  // other finder's value is used.
  if (real != nullptr &&
      !g_real[slot].compare_exchange_strong(
          known, real, std::memory_order_release, std::memory_order_acquire)) {
    return known;
  }
  return real;
}

}  // namespace

void* FindReal(size_t slot, const void* caller) noexcept {
  void* found = FindLinkedSlot(slot, caller);
  if (found == nullptr) {
    for (const char* soname : SonamesOf(SlotInfoOf(slot).layer)) {
      found = FindIn(soname, slot);
      if (found != nullptr) break;
    }
  }
  return Publish(slot, found);
}

void* FindLinked(Hook hook, const void* caller) noexcept {
  return FindLinkedSlot(SlotOf(hook), caller);
}

void* OfferReal(Hook hook, void* real) noexcept {
  return Publish(SlotOf(hook), real);
}

void ForgetUnloaded() noexcept {
  const LibcFunctions& libc = Libc();
  if (libc.dladdr1 == nullptr) return;
  for (std::atomic<void*>& slot : g_real) {
    // relaxed: only compared and cleared; users reload with acquire.
    void* real = slot.load(std::memory_order_relaxed);
    Dl_info info;
    link_map* map = nullptr;
    if (real == nullptr ||
        libc.dladdr1(real, &info, reinterpret_cast<void**>(&map),
                     RTLD_DL_LINKMAP) != 0) {
      continue;
    }
    slot.compare_exchange_strong(real, nullptr, std::memory_order_relaxed);
  }
}

}  // namespace dstrace::hooks
