// SPDX-License-Identifier: Apache-2.0
#include "preload/hooks/real.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <span>

#include "preload/hooks/libc_functions.h"
#include "preload/runtime/guard.h"
#include "preload/runtime/hot_page.h"

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
  static constexpr const char* kCupti[] = {"libcupti.so.13", "libcupti.so.12",
                                           "libcupti.so.11.8"};
  switch (layer) {
    case Layer::kDriver:
      return kDriver;
    case Layer::kRuntime:
      return kRuntime;
    case Layer::kTorch:
      return kTorch;
    case Layer::kNccl:
      return kNccl;
    case Layer::kCupti:
      return kCupti;
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

// The library around an address, or null.
const link_map* LibraryAround(const void* address) noexcept {
  const LibcFunctions& libc = Libc();
  if (address == nullptr || libc.dladdr1 == nullptr) return nullptr;
  Dl_info info;
  link_map* map = nullptr;
  if (libc.dladdr1(address, &info, reinterpret_cast<void**>(&map),
                   RTLD_DL_LINKMAP) == 0) {
    return nullptr;
  }
  return map;
}

void* FindForCaller(size_t slot, const void* caller) noexcept {
  const link_map* map = LibraryAround(caller);
  if (map == nullptr || map->l_name == nullptr || map->l_name[0] == '\0') {
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

// Runtimes besides the one behind g_real: where each is loaded (0: free), and
// its functions.
constexpr size_t kOtherRuntimes = 3;
constinit std::atomic<uintptr_t> g_other_base[kOtherRuntimes] = {};
constinit std::atomic<void*> g_other_real[kOtherRuntimes][kHookCount] = {};

// Which runtime the code on a page is linked with: page number << 4 | runtime,
// 0 being g_real's. A collision only costs another search.
constexpr size_t kPages = 1024;
constinit std::atomic<uint64_t> g_pages[kPages] = {};

bool IsRuntime(const link_map* map) noexcept {
  if (map == nullptr || map->l_name == nullptr) return false;
  const char* slash = std::strrchr(map->l_name, '/');
  const char* name = slash == nullptr ? map->l_name : slash + 1;
  return std::strncmp(name, "libcudart.so", 12) == 0;
}

// The place of the runtime at `base`, or 0 (g_real's) when all are taken.
uint64_t OtherRuntimeAt(uintptr_t base) noexcept {
  for (size_t i = 0; i < kOtherRuntimes; ++i) {
    uintptr_t known = 0;
    // relaxed: a number; its functions are published on their own.
    if (g_other_base[i].compare_exchange_strong(known, base,
                                                std::memory_order_relaxed) ||
        known == base) {
      return i + 1;
    }
  }
  return 0;
}

// A preload between us and CUDA stays in the chain whoever calls; of two
// runtimes, the caller's own is taken.
uint64_t ChooseRuntime(size_t slot, const void* caller) noexcept {
  void* common = FindReal(slot, caller);
  void* own = FindForCaller(slot, caller);
  if (own == nullptr || own == common) return 0;
  const link_map* own_library = LibraryAround(own);
  if (!IsRuntime(own_library) || !IsRuntime(LibraryAround(common))) return 0;
  return OtherRuntimeAt(own_library->l_addr);
}

}  // namespace

void* RealOfRuntime(Hook hook, const void* caller) noexcept {
  const uint64_t page = reinterpret_cast<uintptr_t>(caller) >> 12;
  std::atomic<uint64_t>& place = g_pages[page % kPages];
  // relaxed: the entry says all there is to know.
  uint64_t entry = place.load(std::memory_order_relaxed);
  if (__builtin_expect(entry >> 4 != page, 0)) {
    entry = page << 4 | ChooseRuntime(SlotOf(hook), caller);
    place.store(entry, std::memory_order_relaxed);
  }
  const uint64_t runtime = entry & 15;
  if (__builtin_expect(runtime == 0, 1)) return RealOf(hook, caller);
  std::atomic<void*>& slot = g_other_real[runtime - 1][SlotOf(hook)];
  // acquire: pairs with the release below, as in RealOf().
  void* real = slot.load(std::memory_order_acquire);
  if (real == nullptr) {
    real = FindForCaller(SlotOf(hook), caller);
    slot.store(real, std::memory_order_release);
  }
  return real;
}

void* FindReal(size_t slot, const void* caller) noexcept {
  const runtime::KeepErrno keep_errno;
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
  if (Libc().dladdr1 == nullptr) return;
  // relaxed: the next report asks RealOf() again.
  runtime::Hot().torch_report.store(nullptr, std::memory_order_relaxed);
  for (std::atomic<void*>& slot : g_real) {
    // relaxed: only compared and cleared; users reload with acquire.
    void* real = slot.load(std::memory_order_relaxed);
    if (real == nullptr || LibraryAround(real) != nullptr) continue;
    slot.compare_exchange_strong(real, nullptr, std::memory_order_relaxed);
  }
  // Code may come to lie where other code was: everyone is asked again.
  for (auto& page : g_pages) page.store(0, std::memory_order_relaxed);
  for (auto& functions : g_other_real) {
    for (auto& slot : functions) slot.store(nullptr, std::memory_order_relaxed);
  }
  for (auto& base : g_other_base) base.store(0, std::memory_order_relaxed);
}

}  // namespace dstrace::hooks
