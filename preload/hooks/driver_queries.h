// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_DRIVER_QUERIES_H_
#define DSTRACE_PRELOAD_HOOKS_DRIVER_QUERIES_H_

// dstrace's own questions to the driver. None creates or changes a context.
//
// Thread-safety: thread-safe. Call them under runtime::Guard only. Units are
// bytes. A question the driver cannot answer (not loaded, not initialised, no
// current context, shutting down) says so by its return value.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "preload/hooks/cuda_abi.h"

namespace dstrace::hooks {

struct DeviceMemory {
  size_t free_bytes;
  size_t total_bytes;
};

// Of the calling thread's current context; capture::kDeviceUnknown if none.
int CurrentDevice() noexcept;

// cuMemGetInfo of the current context's device. Never while a stream of this
// process is being captured.
std::optional<DeviceMemory> CurrentMemory() noexcept;

// False while a stream of this process is being captured.
bool CanMeasure() noexcept;

// True if the primary context of `device` exists.
bool PrimaryContextIsActive(CUdevice device) noexcept;

// Writes "GPU-..." as nvidia-smi has it; false if not known.
bool DeviceUuid(CUdevice device, char* text, size_t size) noexcept;

// The pool that cuMemAllocAsync takes from on the current device, or null.
CUmemoryPool CurrentPool() noexcept;

// What the pool holds of the device, or 0. A null pool: the current one of
// the current device.
uint64_t PoolReservedBytes(CUmemoryPool pool) noexcept;

// The same; nothing if not known or the pool is null.
std::optional<uint64_t> PoolMemory(CUmemoryPool pool) noexcept;

// What the memory nodes of graphs hold of `device`; nothing if not known. Not
// while a stream of this process is being captured.
std::optional<uint64_t> GraphReservedBytes(CUdevice device) noexcept;

// Whether `stream` is being captured: what is allocated on it becomes a node
// of a graph. May be asked during a capture.
bool IsCaptured(CUstream stream) noexcept;

// NCCL's own account of the device memory of a communicator; 0 where this NCCL
// keeps none (before 2.29.7).
uint64_t CommunicatorBytes(ncclComm_t comm) noexcept;

bool IsManaged(CUdeviceptr address) noexcept;

// Names GPU `device` and the driver in the trace, once each.
void DescribeGpu(CUdevice device) noexcept;

// Names the CUDA runtime's version, once. Not from beneath a runtime call.
void DescribeRuntime() noexcept;

// Makes `context` current for as long as the object lives.
class ScopedContext {
 public:
  explicit ScopedContext(CUcontext context) noexcept;
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

 private:
  bool pushed_;
};

// Stream captures in progress in this process.
void BeginCapture() noexcept;
void EndCapture() noexcept;

// From here on the driver is not asked anything.
void StopQueries() noexcept;

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_DRIVER_QUERIES_H_
