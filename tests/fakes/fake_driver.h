// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_FAKES_FAKE_DRIVER_H_
#define DSTRACE_TESTS_FAKES_FAKE_DRIVER_H_

// A CUDA driver without a GPU: it hands out addresses, keeps accounts that
// cuMemGetInfo answers from, and refuses what the real driver refuses (double
// frees, null pointers, calls before cuInit, more than there is). Nothing can
// be copied to or computed on its "device memory".
//
// FAKE_CUDA_DEVICES (2), FAKE_CUDA_TOTAL_MIB (8192 each) and
// FAKE_CUDA_CONTEXT_MIB (304) change its size.
//
// Thread-safety: thread-safe, one lock.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "preload/hooks/cuda_abi.h"

namespace dstrace::fakes {

// NOLINTNEXTLINE(google-build-using-namespace): the fake speaks that ABI only
using namespace ::dstrace::hooks;

inline constexpr CUresult kOk = 0;
inline constexpr CUresult kInvalidValue = 1;
inline constexpr CUresult kOutOfMemory = 2;
inline constexpr CUresult kNotInitialized = 3;
inline constexpr CUresult kInvalidDevice = 101;
inline constexpr CUresult kInvalidContext = 201;
inline constexpr CUresult kInvalidHandle = 400;
inline constexpr CUresult kIllegalState = 401;
inline constexpr CUresult kNotFound = 500;

inline constexpr int kMaxDevices = 16;
// What the driver takes for itself when managed memory is first touched.
inline constexpr uint64_t kManagedTouchBytes = uint64_t{60} << 20;
inline constexpr uint64_t kGranularity = 512;  // of device memory

enum class Use : uint8_t {
  kPlain,
  kManaged,
  kPool,
  kHost,
  kRegistered,
  kRange,  // reserved addresses
  kIpc,
};

struct Range {
  uint64_t size;
  int device;
  Use use;
  uint64_t pool;
};

// A physical allocation; lives while created or mapped.
struct Physical {
  uint64_t size;
  int device;  // -1: host or no memory
  int references;
};

struct Mapping {
  uint64_t size;
  uint64_t handle;
};

struct Object {
  uint64_t size;
  int device;
};

struct Context {
  int device;
  bool primary;
  uint64_t heap_bytes;
};

struct Device {
  uint64_t used = 0;
  int primary_references = 0;
  CUcontext primary = nullptr;
  uint64_t next_address = 0;
  uint64_t pool_reserved = 0;
  bool has_streams = false;  // the first stream takes its channels
  // Freed addresses by rounded size: the next allocation of that size gets
  // the last one back, as real allocators do.
  std::unordered_map<uint64_t, std::vector<uint64_t>> freed;
};

// Everything the driver knows. Lock() before any use.
class State {
 public:
  static State& Get();

  std::mutex mutex;
  bool initialized = false;
  int device_count = 2;
  int refused_questions = 0;  // cuCtxGetDevice without a context
  uint64_t total_bytes = 0;
  uint64_t context_bytes = 0;
  Device devices[kMaxDevices];
  std::unordered_map<uint64_t, Range> ranges;
  std::unordered_map<uint64_t, Physical> physical;
  std::map<uint64_t, Mapping> mappings;
  std::unordered_map<uint64_t, Object> objects;  // arrays, modules, pools, ...
  std::unordered_map<CUcontext, Context> contexts;
  // Lazily loaded: of a kernel, module or library what it has taken so far.
  std::unordered_map<uint64_t, uint64_t> loaded;
  std::unordered_map<uint64_t, bool> capturing;  // streams
  // Bytes that the captured allocations of a stream will take, and where.
  std::unordered_map<uint64_t, uint64_t> captured_bytes;
  std::unordered_map<uint64_t, uint64_t> captured_addresses;
  bool managed_touched = false;
  uint64_t next_handle = 0x5000;

  bool Take(int device, uint64_t bytes);
  void Give(int device, uint64_t bytes);
  uint64_t NewAddress(int device, uint64_t bytes);
  void OldAddress(int device, uint64_t address, uint64_t bytes);
  uint64_t NewHandle() { return next_handle += 0x40; }

 private:
  State();
};

uint64_t RoundUp(uint64_t bytes);

// The calling thread's context stack.
std::vector<CUcontext>& ContextStack();

// 0 and the current device, or why there is none.
CUresult CurrentDevice(State& state, int* device);

// Device memory of `bytes` under a new address.
CUresult Allocate(uint64_t bytes, Use use, uint64_t pool, uint64_t* address);
CUresult Release(uint64_t address, bool from_pool);

// The same on a stream that is being captured: a node of its graph. False: it
// is not being captured.
bool AllocateCaptured(CUstream stream, uint64_t bytes, CUdeviceptr* address);
bool ReleaseCaptured(CUstream stream, CUdeviceptr address);

// Any other object: a handle with an account of `bytes`.
CUresult CreateObject(uint64_t bytes, uint64_t* handle);
CUresult DestroyObject(uint64_t handle);

// The functions themselves, under their exported names.
#define DSTRACE_DRIVER_HOOK(symbol, base, since, stream, body, params, args) \
  CUresult symbol params;
#include "preload/hooks/hook_table.inc"
#define FAKE_DRIVER_EXTRA(symbol, base, since, params, args) \
  CUresult symbol params;
#include "tests/fakes/fake_driver_extra.inc"

}  // namespace dstrace::fakes

#endif  // DSTRACE_TESTS_FAKES_FAKE_DRIVER_H_
