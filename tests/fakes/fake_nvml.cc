// SPDX-License-Identifier: Apache-2.0
//
// libnvidia-ml.so.1 over the fake driver: the same device, counted otherwise,
// with what others use besides.
//
// FAKE_NVML_RESERVED_MIB (100) is in its figures only; FAKE_NVML=missing makes
// it fail as without a GPU. Not thread-safe beyond the driver's own lock.

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

std::atomic<int> g_users{0};
std::atomic<bool> g_attached{false};

constexpr unsigned int kNoAttach = 2;  // NVML_INIT_FLAG_NO_ATTACH
constexpr int kUninitialized = 1;
constexpr int kNotFound = 6;

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

uint64_t Reserved() {
  const char* const text = std::getenv("FAKE_NVML_RESERVED_MIB");
  return std::strtoull(text == nullptr ? "100" : text, nullptr, 10) << 20;
}

// Not of cuMemGetInfo's kind: needs no context.
bool AskDriver(int device, uint64_t* used, uint64_t* total) {
  using Figures = int(int, uint64_t*, uint64_t*);
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  auto* const figures =
      reinterpret_cast<Figures*>(dlsym(driver, "FakeDriverFigures"));
  return figures != nullptr && figures(device, used, total) == 0;
}

}  // namespace

FAKE_EXPORT int nvmlInitWithFlags(unsigned int flags) {
  const char* const mode = std::getenv("FAKE_NVML");
  if (mode != nullptr && std::strcmp(mode, "missing") == 0) return kNotFound;
  ++g_users;
  g_attached = (flags & kNoAttach) == 0;
  return 0;
}
FAKE_EXPORT int nvmlShutdown() {
  if (g_users == 0) return kUninitialized;
  --g_users;
  return 0;
}
// The fake driver's UUIDs end in the ordinal.
FAKE_EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, void** out) {
  if (g_users == 0) return kUninitialized;
  if (!g_attached) return kNotFound;  // as the real one
  const size_t length = std::strlen(uuid);
  if (std::strncmp(uuid, "GPU-", 4) != 0 || length < 6) return kNotFound;
  *out = reinterpret_cast<void*>(std::strtoull(uuid + length - 2, nullptr, 16) +
                                 1);
  return 0;
}
FAKE_EXPORT int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  if (g_users == 0) return kUninitialized;
  uint64_t used = 0;
  uint64_t total = 0;
  const int index = static_cast<int>(reinterpret_cast<uintptr_t>(device)) - 1;
  if (!AskDriver(index, &used, &total)) return kNotFound;
  memory->total = total + Reserved();
  memory->used = used + Reserved();
  memory->free = total - used;
  return 0;
}
