// SPDX-License-Identifier: Apache-2.0
//
// An NCCL that reaches the driver past every library: its own (static) runtime
// does dlopen("libcuda.so.1"), dlsym("cuGetProcAddress_v2") and one look-up per
// function. Each communicator takes buffers with cuMemCreate and one pinned
// block. FAKE_NCCL_BUFFERS (24) buffers of 2 MiB each.

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "preload/hooks/cuda_abi.h"

#define FAKE_EXPORT __attribute__((visibility("default")))

namespace dstrace::fakes {

// NOLINTNEXTLINE(google-build-using-namespace): the fake speaks that ABI only
using namespace ::dstrace::hooks;

namespace {

constexpr size_t kBufferBytes = size_t{2} << 20;
constexpr size_t kPinnedBytes = size_t{1} << 20;

using GetProcAddress = CUresult(const char*, void**, int, uint64_t, int*);

struct Driver {
  CUresult (*init)(unsigned int);
  CUresult (*get_device)(CUdevice*);
  CUresult (*retain)(CUcontext*, CUdevice);
  CUresult (*set_current)(CUcontext);
  CUresult (*create)(CUmemGenericAllocationHandle*, size_t,
                     const CUmemAllocationProp*, unsigned long long);
  CUresult (*release)(CUmemGenericAllocationHandle);
  CUresult (*reserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr,
                      unsigned long long);
  CUresult (*free)(CUdeviceptr, size_t);
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                  unsigned long long);
  CUresult (*unmap)(CUdeviceptr, size_t);
  CUresult (*set_access)(CUdeviceptr, size_t, const void*, size_t);
  CUresult (*host_alloc)(void**, size_t, unsigned int);
  CUresult (*host_free)(void*);
};

Driver g_driver;
std::once_flag g_once;
bool g_loaded = false;

template <class F>
bool Fill(GetProcAddress* get, const char* name, int version, F*& function) {
  void* found = nullptr;
  int status = 0;
  if (get(name, &found, version, 0, &status) != 0) return false;
  function = reinterpret_cast<F*>(found);
  return found != nullptr;
}

void Load() {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return;
  auto* get =
      reinterpret_cast<GetProcAddress*>(dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) return;
  Driver& d = g_driver;
  g_loaded = Fill(get, "cuInit", 2000, d.init) &&
             Fill(get, "cuCtxGetDevice", 2000, d.get_device) &&
             Fill(get, "cuDevicePrimaryCtxRetain", 7000, d.retain) &&
             Fill(get, "cuCtxSetCurrent", 4000, d.set_current) &&
             Fill(get, "cuMemCreate", 10020, d.create) &&
             Fill(get, "cuMemRelease", 10020, d.release) &&
             Fill(get, "cuMemAddressReserve", 10020, d.reserve) &&
             Fill(get, "cuMemAddressFree", 10020, d.free) &&
             Fill(get, "cuMemMap", 10020, d.map) &&
             Fill(get, "cuMemUnmap", 10020, d.unmap) &&
             Fill(get, "cuMemSetAccess", 10020, d.set_access) &&
             Fill(get, "cuMemHostAlloc", 2020, d.host_alloc) &&
             Fill(get, "cuMemFreeHost", 2000, d.host_free) && d.init(0) == 0;
}

size_t BufferCount() {
  const char* text = std::getenv("FAKE_NCCL_BUFFERS");
  return text == nullptr ? 24 : std::strtoul(text, nullptr, 10);
}

struct Buffer {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address;
};

}  // namespace
}  // namespace dstrace::fakes

// NCCL's own opaque type.
struct dstrace::hooks::ncclComm {
  std::vector<dstrace::fakes::Buffer> buffers;
  void* pinned = nullptr;
};

namespace dstrace::fakes {
namespace {

constexpr ncclResult_t kUnhandledCudaError = 1;
constexpr ncclResult_t kInvalidArgument = 4;

bool TakeBuffer(int device, ncclComm_t comm) {
  CUmemAllocationProp prop{};
  prop.type = 1;
  prop.location = {kLocationDevice, device};
  Buffer buffer{};
  if (g_driver.create(&buffer.handle, kBufferBytes, &prop, 0) != 0) {
    return false;
  }
  const bool mapped =
      g_driver.reserve(&buffer.address, kBufferBytes, 0, 0, 0) == 0 &&
      g_driver.map(buffer.address, kBufferBytes, 0, buffer.handle, 0) == 0 &&
      g_driver.set_access(buffer.address, kBufferBytes, &prop, 1) == 0;
  comm->buffers.push_back(buffer);
  return mapped;
}

ncclResult_t Open(ncclComm_t* out) {
  std::call_once(g_once, Load);
  if (out == nullptr) return kInvalidArgument;
  if (!g_loaded) return kUnhandledCudaError;
  int device = 0;
  if (g_driver.get_device(&device) != 0) {
    CUcontext context = nullptr;
    if (g_driver.retain(&context, 0) != 0) return kUnhandledCudaError;
    g_driver.set_current(context);
    device = 0;
  }
  auto* comm = new ncclComm;
  *out = comm;
  for (size_t i = 0; i < BufferCount(); ++i) {
    if (!TakeBuffer(device, comm)) return kUnhandledCudaError;
  }
  return g_driver.host_alloc(&comm->pinned, kPinnedBytes, 0) == 0
             ? 0
             : kUnhandledCudaError;
}

ncclResult_t Close(ncclComm_t comm) {
  if (comm == nullptr) return kInvalidArgument;
  for (const Buffer& buffer : comm->buffers) {
    if (buffer.address != 0) {
      g_driver.unmap(buffer.address, kBufferBytes);
      g_driver.free(buffer.address, kBufferBytes);
    }
    g_driver.release(buffer.handle);
  }
  if (comm->pinned != nullptr) g_driver.host_free(comm->pinned);
  delete comm;
  return 0;
}

}  // namespace

extern "C" {

FAKE_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return kInvalidArgument;
  static std::atomic<unsigned> next{1};
  std::memset(id, 0, sizeof *id);
  const unsigned number = next.fetch_add(1);
  std::memcpy(id, &number, sizeof number);
  return 0;
}
FAKE_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int, ncclUniqueId,
                                          int) {
  return Open(comm);
}
FAKE_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int,
                                                ncclUniqueId, int,
                                                ncclConfig_t*) {
  return Open(comm);
}
FAKE_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int, int,
                                                  int, ncclUniqueId*,
                                                  ncclConfig_t*) {
  return Open(comm);
}
FAKE_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count,
                                         const int*) {
  ncclResult_t result = 0;
  for (int i = 0; i < count && result == 0; ++i) result = Open(&comms[i]);
  return result;
}
FAKE_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int, int,
                                       ncclComm_t* out, ncclConfig_t*) {
  return comm == nullptr ? kInvalidArgument : Open(out);
}
// 0 total, 1 that cannot be suspended, 2 that can, 3 whether it is.
FAKE_EXPORT ncclResult_t ncclCommMemStats(ncclComm_t comm, int statistic,
                                          uint64_t* value) {
  if (comm == nullptr || value == nullptr) return kInvalidArgument;
  const uint64_t total = comm->buffers.size() * kBufferBytes;
  const uint64_t values[] = {total, total - kBufferBytes, kBufferBytes, 0};
  if (statistic < 0 || statistic > 3) return kInvalidArgument;
  *value = values[statistic];
  return 0;
}
FAKE_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return comm == nullptr ? kInvalidArgument : 0;
}
FAKE_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return Close(comm);
}
FAKE_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) { return Close(comm); }

}  // extern "C"

}  // namespace dstrace::fakes
