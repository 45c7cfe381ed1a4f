// SPDX-License-Identifier: Apache-2.0
//
// Devices, contexts and what is loaded into them, arrays.
#include <cstring>

#include "tests/fakes/fake_driver.h"

namespace dstrace::fakes {
namespace {

constexpr uint64_t kModuleBytes = uint64_t{1} << 20;
constexpr uint64_t kKernelBytes = uint64_t{2} << 20;  // code; twice for local
constexpr uint64_t kStreamBytes = uint64_t{8} << 20;
constexpr int kLimitHeap = 2;

CUresult CheckDevice(const State& state, int device) {
  if (!state.initialized) return kNotInitialized;
  return device < 0 || device >= state.device_count ? kInvalidDevice : kOk;
}

CUresult NewContext(State& state, int device, bool primary, CUcontext* out) {
  if (!state.Take(device, state.context_bytes)) return kOutOfMemory;
  *out = reinterpret_cast<CUcontext>(state.NewHandle());
  state.contexts[*out] = {device, primary, 0};
  return kOk;
}

void EndContext(State& state, CUcontext context) {
  const auto found = state.contexts.find(context);
  if (found == state.contexts.end()) return;
  state.Give(found->second.device,
             state.context_bytes + found->second.heap_bytes);
  state.contexts.erase(found);
}

CUresult CreateCurrent(CUcontext* out, CUdevice device) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  CUresult result = CheckDevice(state, device);
  if (result != kOk) return result;
  if (out == nullptr) return kInvalidValue;
  result = NewContext(state, device, false, out);
  if (result == kOk) ContextStack().push_back(*out);
  return result;
}

template <class H>
CUresult Create(H* out, uint64_t bytes) {
  uint64_t handle = 0;
  const CUresult result =
      CreateObject(bytes, out == nullptr ? nullptr : &handle);
  if (result == kOk) *out = reinterpret_cast<H>(handle);
  return result;
}

uint64_t Handle(const void* handle) {
  return reinterpret_cast<uint64_t>(handle);
}

}  // namespace

CUresult cuInit(unsigned int) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  state.initialized = true;
  return kOk;
}
CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = 13000;
  return kOk;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  State& state = State::Get();
  const CUresult result = CheckDevice(state, ordinal);
  if (result == kOk) *device = ordinal;
  return result;
}
CUresult cuDeviceGetCount(int* count) {
  State& state = State::Get();
  if (!state.initialized) return kNotInitialized;
  *count = state.device_count;
  return kOk;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::strncpy(name, "Simulated GPU", static_cast<size_t>(length));
  return kOk;
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  for (int i = 0; i < 16; ++i) {
    uuid->bytes[i] = static_cast<unsigned char>(i * 17);
  }
  uuid->bytes[15] = static_cast<unsigned char>(device);
  return kOk;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = State::Get().total_bytes;
  return kOk;
}

// ---- contexts ----
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags,
                                    int* active) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  const CUresult result = CheckDevice(state, device);
  if (result != kOk) return result;
  *flags = 0;
  *active = state.devices[device].primary_references > 0 ? 1 : 0;
  return kOk;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  CUresult result = CheckDevice(state, device);
  if (result != kOk) return result;
  if (out == nullptr) return kInvalidValue;
  Device& owner = state.devices[device];
  if (owner.primary_references == 0) {
    result = NewContext(state, device, true, &owner.primary);
    if (result != kOk) return result;
  }
  ++owner.primary_references;
  *out = owner.primary;
  return kOk;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  const CUresult result = CheckDevice(state, device);
  if (result != kOk) return result;
  Device& owner = state.devices[device];
  if (owner.primary_references == 0) return kInvalidContext;
  if (--owner.primary_references == 0) EndContext(state, owner.primary);
  return kOk;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return cuDevicePrimaryCtxRelease_v2(device);
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  const CUresult result = CheckDevice(state, device);
  if (result != kOk) return result;
  Device& owner = state.devices[device];
  if (owner.primary_references > 0) EndContext(state, owner.primary);
  owner.primary_references = 0;
  return kOk;
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return cuDevicePrimaryCtxReset_v2(device);
}
CUresult cuCtxCreate(CUcontext* out, unsigned int, CUdevice device) {
  return CreateCurrent(out, device);
}
CUresult cuCtxCreate_v2(CUcontext* out, unsigned int, CUdevice device) {
  return CreateCurrent(out, device);
}
CUresult cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam*, int, unsigned int,
                        CUdevice device) {
  return CreateCurrent(out, device);
}
CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams*, unsigned int,
                        CUdevice device) {
  return CreateCurrent(out, device);
}
CUresult cuCtxDestroy_v2(CUcontext context) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (state.contexts.count(context) == 0) return kInvalidContext;
  EndContext(state, context);
  std::vector<CUcontext>& stack = ContextStack();
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return kOk;
}
CUresult cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }
CUresult cuCtxDetach(CUcontext context) { return cuCtxDestroy_v2(context); }
CUresult cuCtxGetDevice(CUdevice* device) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (device == nullptr) return kInvalidValue;
  const CUresult result = CurrentDevice(state, device);
  if (result != kOk) ++state.refused_questions;
  return result;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  if (context == nullptr) return kInvalidValue;
  const std::vector<CUcontext>& stack = ContextStack();
  *context = stack.empty() ? nullptr : stack.back();
  return State::Get().initialized ? kOk : kNotInitialized;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  std::vector<CUcontext>& stack = ContextStack();
  if (stack.empty()) {
    stack.push_back(context);
  } else {
    stack.back() = context;
  }
  return kOk;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ContextStack().push_back(context);
  return kOk;
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  std::vector<CUcontext>& stack = ContextStack();
  if (stack.empty()) return kInvalidContext;
  if (context != nullptr) *context = stack.back();
  stack.pop_back();
  return kOk;
}
CUresult cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc, CUdevice,
                          unsigned int) {
  return Create(out, kModuleBytes);
}
CUresult cuGreenCtxDestroy(CUgreenCtx context) {
  return DestroyObject(Handle(context));
}
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  int device = 0;
  const CUresult result = CurrentDevice(state, &device);
  if (result != kOk || limit != kLimitHeap) return result;
  Context& context = state.contexts[ContextStack().back()];
  state.Give(device, context.heap_bytes);
  context.heap_bytes = 0;
  if (!state.Take(device, value)) return kOutOfMemory;
  context.heap_bytes = value;
  return kOk;
}
CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  int device = 0;
  const CUresult result = CurrentDevice(state, &device);
  if (result != kOk) return result;
  if (free_bytes == nullptr || total == nullptr) return kInvalidValue;
  // Stricter than any driver: whoever asks during a capture ruins it.
  if (!state.capturing.empty()) {
    for (auto& [stream, valid] : state.capturing) valid = false;
    return 900;
  }
  *total = state.total_bytes;
  *free_bytes = state.total_bytes - state.devices[device].used;
  return kOk;
}

// ---- code ----
CUresult cuModuleLoad(CUmodule* out, const char* path) {
  return path == nullptr ? kInvalidValue : Create(out, kModuleBytes);
}
CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  return image == nullptr ? kInvalidValue : Create(out, kModuleBytes);
}
CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned int,
                            CUjit_option*, void**) {
  return cuModuleLoadData(out, image);
}
CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return cuModuleLoadData(out, image);
}
CUresult cuModuleUnload(CUmodule module) {
  return DestroyObject(Handle(module));
}
CUresult cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option*,
                           void**, unsigned int, CUlibraryOption*, void**,
                           unsigned int) {
  return code == nullptr ? kInvalidValue : Create(out, kModuleBytes);
}
CUresult cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option*,
                               void**, unsigned int, CUlibraryOption*, void**,
                               unsigned int) {
  return path == nullptr ? kInvalidValue : Create(out, kModuleBytes);
}
CUresult cuLibraryUnload(CUlibrary library) {
  return DestroyObject(Handle(library));
}

// ---- code is loaded when first asked about or launched, as with the driver's
// lazy loading; a launch also makes room for local memory ----
namespace {

enum Step : uint64_t { kCode = 1, kLocal = 2 };

CUresult Load(uint64_t handle, uint64_t steps) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  int device = 0;
  const CUresult result = CurrentDevice(state, &device);
  if (result != kOk) return result;
  if (handle == 0) return kInvalidHandle;
  uint64_t& done = state.loaded[handle];
  for (const uint64_t step : {kCode, kLocal}) {
    if ((steps & ~done & step) == 0) continue;
    if (!state.Take(device, step * kKernelBytes)) return kOutOfMemory;
    done |= step;
  }
  return kOk;
}

CUresult NewStream(CUstream* out) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  int device = 0;
  const CUresult result = CurrentDevice(state, &device);
  if (result != kOk) return result;
  if (out == nullptr) return kInvalidValue;
  bool& known = state.devices[device].has_streams;
  if (!known && !state.Take(device, kStreamBytes)) return kOutOfMemory;
  known = true;
  *out = reinterpret_cast<CUstream>(state.NewHandle());
  return kOk;
}

}  // namespace

CUresult cuModuleGetFunction(CUfunction* out, CUmodule module,
                             const char* name) {
  if (out == nullptr || module == nullptr || name == nullptr) {
    return kInvalidValue;
  }
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  *out = reinterpret_cast<CUfunction>(state.NewHandle());
  return kOk;
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr*, size_t*, CUmodule module,
                              const char*) {
  return Load(Handle(module), kCode);
}
CUresult cuLibraryGetModule(CUmodule* out, CUlibrary library) {
  if (out == nullptr) return kInvalidValue;
  *out = reinterpret_cast<CUmodule>(library);
  return Load(Handle(library), kCode);
}
CUresult cuLibraryGetGlobal(CUdeviceptr*, size_t*, CUlibrary library,
                            const char*) {
  return Load(Handle(library), kCode);
}
CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  if (out == nullptr) return kInvalidValue;
  *out = reinterpret_cast<CUfunction>(kernel);
  return Load(Handle(kernel), kCode);
}
CUresult cuKernelGetAttribute(int*, CUfunction_attribute, CUkernel kernel,
                              CUdevice) {
  return Load(Handle(kernel), kCode);
}
CUresult cuKernelSetAttribute(CUfunction_attribute, int, CUkernel kernel,
                              CUdevice) {
  return Load(Handle(kernel), kCode);
}
CUresult cuFuncGetAttribute(int*, CUfunction_attribute, CUfunction function) {
  return Load(Handle(function), kCode);
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute, int) {
  return Load(Handle(function), kCode);
}
CUresult cuFuncLoad(CUfunction function) {
  return Load(Handle(function), kCode);
}
CUresult cuLaunchKernel(CUfunction function, unsigned int, unsigned int,
                        unsigned int, unsigned int, unsigned int, unsigned int,
                        unsigned int, CUstream, void**, void**) {
  return Load(Handle(function), kCode | kLocal);
}
CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int, unsigned int,
                             unsigned int, unsigned int, unsigned int,
                             unsigned int, unsigned int, CUstream, void**,
                             void**) {
  return Load(Handle(function), kCode | kLocal);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction function, void**,
                          void**) {
  return Load(Handle(function), kCode | kLocal);
}
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig*, CUfunction function,
                               void**, void**) {
  return Load(Handle(function), kCode | kLocal);
}
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int,
                                   unsigned int, unsigned int, unsigned int,
                                   unsigned int, unsigned int, unsigned int,
                                   CUstream, void**) {
  return Load(Handle(function), kCode | kLocal);
}
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int,
                                        unsigned int, unsigned int,
                                        unsigned int, unsigned int,
                                        unsigned int, unsigned int, CUstream,
                                        void**) {
  return Load(Handle(function), kCode | kLocal);
}
CUresult cuStreamCreate(CUstream* out, unsigned int) { return NewStream(out); }
CUresult cuStreamCreateWithPriority(CUstream* out, unsigned int, int) {
  return NewStream(out);
}
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int) {
  return Load(Handle(peer), kCode);
}

// ---- arrays: every texel one byte wide times its channels ----
CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* desc) {
  if (desc == nullptr) return kInvalidValue;
  return Create(out, desc->width * (desc->height | 1) * desc->channels);
}
CUresult cuArrayCreate(CUarray* out, const CUDA_ARRAY_DESCRIPTOR_v1* desc) {
  if (desc == nullptr) return kInvalidValue;
  return Create(out, uint64_t{desc->width} * desc->channels);
}
CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* desc) {
  if (desc == nullptr) return kInvalidValue;
  return Create(out, desc->width * desc->channels);
}
CUresult cuArray3DCreate(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR_v1* desc) {
  if (desc == nullptr) return kInvalidValue;
  return Create(out, uint64_t{desc->width} * desc->channels);
}
CUresult cuArrayDestroy(CUarray array) { return DestroyObject(Handle(array)); }
CUresult cuMipmappedArrayCreate(CUmipmappedArray* out,
                                const CUDA_ARRAY3D_DESCRIPTOR* desc,
                                unsigned int levels) {
  if (desc == nullptr) return kInvalidValue;
  return Create(out, desc->width * desc->channels * levels);
}
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return DestroyObject(Handle(array));
}

}  // namespace dstrace::fakes
