// SPDX-License-Identifier: Apache-2.0
#include "preload/hooks/driver_queries.h"

#include <atomic>
#include <string_view>

#include "preload/capture/recorder.h"
#include "preload/hooks/real.h"
#include "preload/runtime/text.h"

namespace dstrace::hooks {
namespace {

std::atomic<bool> g_stopped{false};
std::atomic<int> g_captures{0};

// One bit per device: described already.
std::atomic<uint64_t> g_described{0};
std::atomic<bool> g_driver_described{false};
std::atomic<bool> g_runtime_described{false};

template <Query kQuery, class... Args>
CUresult Ask(Args... args) noexcept {
  // relaxed: a late question is answered with an error by the driver.
  if (g_stopped.load(std::memory_order_relaxed)) return kCudaNotFound;
  auto* real = reinterpret_cast<CUresult (*)(Args...)>(RealOf(kQuery));
  return real == nullptr ? kCudaNotFound : real(args...);
}

// "GPU-" and the bytes in hex as nvidia-smi writes them.
using UuidText = runtime::Text<48>;
UuidText FormatUuid(const CUuuid& uuid) noexcept {
  static constexpr char kHex[] = "0123456789abcdef";
  UuidText text;
  text << "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text << '-';
    text << kHex[uuid.bytes[i] >> 4] << kHex[uuid.bytes[i] & 15];
  }
  return text;
}

void RecordVersion(std::string_view name, int version) noexcept {
  runtime::Text<16> text;
  text << static_cast<uint64_t>(version / 1000) << '.'
       << static_cast<uint64_t>(version % 1000 / 10);
  capture::RecordProperty(name, text.view());
}

void DescribeDriver() noexcept {
  // relaxed: only who is first matters.
  if (g_driver_described.exchange(true, std::memory_order_relaxed)) return;
  int version = 0;
  if (Ask<Query::cuDriverGetVersion>(&version) == kCudaSuccess) {
    RecordVersion("cuda.driver_version", version);
  }
}

}  // namespace

int CurrentDevice() noexcept {
  // Without a context the second question is an error, which a tool that
  // watches the program (compute-sanitizer) would count as the program's.
  CUcontext context = nullptr;
  CUdevice device = 0;
  if (Ask<Query::cuCtxGetCurrent>(&context) != kCudaSuccess ||
      context == nullptr) {
    return capture::kDeviceUnknown;
  }
  if (Ask<Query::cuCtxGetDevice>(&device) != kCudaSuccess) {
    return capture::kDeviceUnknown;
  }
  return device;
}

bool CanMeasure() noexcept {
  // relaxed: a capture begun by another thread this instant may be missed;
  // in the capturing thread the order is the program's.
  return g_captures.load(std::memory_order_relaxed) == 0;
}

std::optional<DeviceMemory> CurrentMemory() noexcept {
  if (!CanMeasure()) return std::nullopt;
  DeviceMemory memory{};
  if (Ask<Query::cuMemGetInfo_v2>(&memory.free_bytes, &memory.total_bytes) !=
      kCudaSuccess) {
    return std::nullopt;
  }
  return memory;
}

bool PrimaryContextIsActive(CUdevice device) noexcept {
  unsigned int flags = 0;
  int active = 0;
  return Ask<Query::cuDevicePrimaryCtxGetState>(device, &flags, &active) ==
             kCudaSuccess &&
         active != 0;
}

bool DeviceUuid(CUdevice device, char* text, size_t size) noexcept {
  CUuuid uuid{};
  if (Ask<Query::cuDeviceGetUuid_v2>(&uuid, device) != kCudaSuccess) {
    return false;
  }
  const UuidText found = FormatUuid(uuid);
  if (found.view().size() >= size) return false;
  text[found.view().copy(text, size - 1)] = '\0';
  return true;
}

CUmemoryPool CurrentPool() noexcept {
  CUmemoryPool pool = nullptr;
  Ask<Query::cuDeviceGetMemPool>(&pool, CurrentDevice());
  return pool;
}

uint64_t PoolReservedBytes(CUmemoryPool pool) noexcept {
  if (pool == nullptr) pool = CurrentPool();
  return PoolMemory(pool).value_or(0);
}

std::optional<uint64_t> PoolMemory(CUmemoryPool pool) noexcept {
  if (pool == nullptr) return std::nullopt;
  uint64_t bytes = 0;
  if (Ask<Query::cuMemPoolGetAttribute>(pool, kPoolReservedCurrent,
                                        static_cast<void*>(&bytes)) !=
      kCudaSuccess) {
    return std::nullopt;
  }
  return bytes;
}

std::optional<uint64_t> GraphReservedBytes(CUdevice device) noexcept {
  if (!CanMeasure()) return std::nullopt;
  uint64_t bytes = 0;
  if (Ask<Query::cuDeviceGetGraphMemAttribute>(device, kGraphMemReservedCurrent,
                                               static_cast<void*>(&bytes)) !=
      kCudaSuccess) {
    return std::nullopt;
  }
  return bytes;
}

bool IsCaptured(CUstream stream) noexcept {
  if (CanMeasure()) return false;
  int status = 0;
  return Ask<Query::cuStreamIsCapturing>(stream, &status) == kCudaSuccess &&
         status != 0;
}

// The total is the largest of the statistics: its parts, and a flag.
uint64_t CommunicatorBytes(ncclComm_t comm) noexcept {
  constexpr int kStatistics = 4;
  if (comm == nullptr) return 0;
  uint64_t total = 0;
  for (int i = 0; i < kStatistics; ++i) {
    uint64_t value = 0;
    if (Ask<Query::ncclCommMemStats>(comm, i, &value) != 0) return total;
    if (value > total) total = value;
  }
  return total;
}

bool IsManaged(CUdeviceptr address) noexcept {
  uint64_t managed = 0;  // the driver writes a bool or an int
  return Ask<Query::cuPointerGetAttribute>(static_cast<void*>(&managed),
                                           kPointerIsManaged,
                                           address) == kCudaSuccess &&
         managed != 0;
}

void DescribeGpu(CUdevice device) noexcept {
  if (device < 0 || device >= 64) return;
  const uint64_t bit = uint64_t{1} << device;
  // relaxed: only who is first matters.
  if ((g_described.fetch_or(bit, std::memory_order_relaxed) & bit) != 0) {
    return;
  }
  DescribeDriver();
  char name[256] = "";
  CUuuid uuid{};
  size_t total = 0;
  Ask<Query::cuDeviceGetName>(&name[0], static_cast<int>(sizeof name - 1),
                              device);
  const bool has_uuid =
      Ask<Query::cuDeviceGetUuid_v2>(&uuid, device) == kCudaSuccess;
  Ask<Query::cuDeviceTotalMem_v2>(&total, device);
  const UuidText text = FormatUuid(uuid);
  capture::RecordGpu(device, name, has_uuid ? text.view() : "", total);
}

void DescribeRuntime() noexcept {
  // relaxed: only who is first matters. Plain load first: this runs on every
  // runtime call.
  if (g_runtime_described.load(std::memory_order_relaxed) ||
      g_runtime_described.exchange(true, std::memory_order_relaxed)) {
    return;
  }
  int version = 0;
  if (Ask<Query::cudaRuntimeGetVersion>(&version) == 0) {
    RecordVersion("cuda.runtime_version", version);
  }
}

ScopedContext::ScopedContext(CUcontext context) noexcept
    : pushed_(Ask<Query::cuCtxPushCurrent_v2>(context) == kCudaSuccess) {}

ScopedContext::~ScopedContext() {
  if (!pushed_) return;
  CUcontext popped = nullptr;
  Ask<Query::cuCtxPopCurrent_v2>(&popped);
}

void BeginCapture() noexcept {
  // relaxed: see CurrentMemory().
  g_captures.fetch_add(1, std::memory_order_relaxed);
}

void EndCapture() noexcept {
  int captures = g_captures.load(std::memory_order_relaxed);
  // A capture that began before the hooks were in place must not count down.
  while (captures > 0 &&
         !g_captures.compare_exchange_weak(captures, captures - 1,
                                           std::memory_order_relaxed)) {
  }
}

void StopQueries() noexcept {
  g_stopped.store(true, std::memory_order_relaxed);
}

}  // namespace dstrace::hooks
