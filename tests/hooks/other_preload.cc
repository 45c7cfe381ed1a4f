// SPDX-License-Identifier: Apache-2.0
//
// Somebody else's preload that also defines cudaMalloc and cudaFree and passes
// them on to whoever is next. Built twice: to stand before us and after us.
#include <dlfcn.h>

#include <atomic>

#define EXPORT extern "C" __attribute__((visibility("default")))
#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)

namespace {
std::atomic<int> g_calls{0};
}

EXPORT int cudaMalloc(void** out, unsigned long size) {
  g_calls.fetch_add(1);
  auto* next = reinterpret_cast<int (*)(void**, unsigned long)>(
      dlsym(RTLD_NEXT, "cudaMalloc"));
  return next == nullptr ? -1 : next(out, size);
}

EXPORT int cudaFree(void* pointer) {
  g_calls.fetch_add(1);
  auto* next = reinterpret_cast<int (*)(void*)>(dlsym(RTLD_NEXT, "cudaFree"));
  return next == nullptr ? -1 : next(pointer);
}

EXPORT int PASTE(OTHER_NAME, Calls)() { return g_calls.load(); }

// Which definition of this name does RTLD_NEXT find from here?
EXPORT const char* WhoIsThis() { return OTHER_TEXT; }
EXPORT const char* PASTE(OTHER_NAME, Next)() {
  auto* next =
      reinterpret_cast<const char* (*)()>(dlsym(RTLD_NEXT, "WhoIsThis"));
  return next == nullptr ? "nobody" : next();
}
