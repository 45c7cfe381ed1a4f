// SPDX-License-Identifier: Apache-2.0
#include "preload/hooks/nvml.h"

#include <dlfcn.h>

#include <atomic>

#include "preload/hooks/driver_queries.h"
#include "preload/hooks/libc_functions.h"

namespace dstrace::hooks {
namespace {

struct NvmlMemory {  // nvmlMemory_t
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
using NvmlDevice = struct nvmlDevice_st*;

// NVML_INIT_FLAG_NO_ATTACH would be quicker, but no device is found by UUID
// then (NVML_ERROR_NOT_FOUND; driver 580.159).
constexpr unsigned int kAttach = 0;

void* OpenNvml() noexcept {
  const LibcFunctions& libc = Libc();
  if (libc.dlopen == nullptr || libc.dlsym == nullptr) return nullptr;
  return libc.dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
}

// The library, opened once; null if there is none.
void* Nvml() noexcept {
  static std::atomic<void*> opened{nullptr};
  static std::atomic<bool> missing{false};
  // acquire, release: dlopen is complete for who sees its handle.
  void* library = opened.load(std::memory_order_acquire);
  if (library != nullptr) return library;
  // relaxed: another attempt does no harm.
  if (missing.load(std::memory_order_relaxed)) return nullptr;
  library = OpenNvml();
  if (library == nullptr) {
    missing.store(true, std::memory_order_relaxed);
  } else {
    opened.store(library, std::memory_order_release);
  }
  return library;
}

template <class... Args>
bool Ask(const char* name, Args... args) noexcept {
  void* const library = Nvml();
  if (library == nullptr) return false;
  auto* function =
      reinterpret_cast<int (*)(Args...)>(Libc().dlsym(library, name));
  return function != nullptr && function(args...) == 0;
}

}  // namespace

std::optional<uint64_t> NvmlUsedBytes(CUdevice device) noexcept {
  char uuid[48] = "";
  if (!DeviceUuid(device, uuid, sizeof uuid)) return std::nullopt;
  if (!Ask("nvmlInitWithFlags", kAttach)) return std::nullopt;
  NvmlDevice handle = nullptr;
  NvmlMemory memory = {};
  const char* name = uuid;
  const bool known = Ask("nvmlDeviceGetHandleByUUID", name, &handle) &&
                     Ask("nvmlDeviceGetMemoryInfo", handle, &memory);
  Ask("nvmlShutdown");
  if (!known) return std::nullopt;
  return memory.used;
}

}  // namespace dstrace::hooks
