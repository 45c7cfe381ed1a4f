// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_HOOKS_EXERCISES_CONTEXT_H_
#define DSTRACE_TESTS_HOOKS_EXERCISES_CONTEXT_H_

// Contexts, code, and the way to other driver functions.

#include "tests/hooks/exercises.h"

namespace dstrace::hooks::testing {

// Device 1 is nobody's: device 0's primary context is the tests' own.
inline constexpr CUdevice kOther = 1;

inline int CountSamples(capture::SampleReason reason) {
  int count = 0;
  for (const fakes::Sample& sample : FakeRecorderGet().samples) {
    if (sample.reason == reason) ++count;
  }
  return count;
}

inline void ExercisePrimaryCtxRetain(const Target& target,
                                     int (*retain)(CUcontext*, CUdevice)) {
  CUcontext context = nullptr;
  ASSERT_EQ(retain(&context, kOther), 0);
  // The new context's own device was asked, though it is not current.
  ASSERT_EQ(CountSamples(capture::SampleReason::kContext), 1);
  EXPECT_EQ(FakeRecorderGet().samples.back().device, kOther);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kContextCreate);
  EXPECT_EQ(event.handle, Number(context));
  EXPECT_EQ(event.device, kOther);
  EXPECT_EQ(event.flags, 1u);

  ASSERT_EQ(retain(&context, kOther), 0);  // a reference more
  EXPECT_EQ(CountSamples(capture::SampleReason::kContext), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextCreate).flags, 0u);
  EXPECT_EQ(retain(nullptr, kOther), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextCreate).result,
            kInvalidValue);
  EXPECT_EQ(retain(&context, 99), 101);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextCreate).result, 101);
  EXPECT_EQ(cuDevicePrimaryCtxReset_v2(kOther), 0);
  FakeRecorderClear();
}
inline void ExercisePrimaryCtxRelease(const Target& target,
                                      int (*release)(CUdevice)) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, kOther), 0);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, kOther), 0);
  FakeRecorderClear();
  ASSERT_EQ(release(kOther), 0);
  const DeviceEvent first = TakeEvent(target, DeviceKind::kContextDestroy);
  EXPECT_EQ(first.flags, 0u);  // one reference is left
  EXPECT_EQ(first.device, kOther);
  ASSERT_EQ(release(kOther), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextDestroy).flags, 1u);
  EXPECT_EQ(release(kOther), 201);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextDestroy).result, 201);
}
inline void ExercisePrimaryCtxReset(const Target& target,
                                    int (*reset)(CUdevice)) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, kOther), 0);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, kOther), 0);
  FakeRecorderClear();
  ASSERT_EQ(reset(kOther), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextDestroy).flags, 1u);
  EXPECT_EQ(reset(99), 101);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextDestroy).result, 101);
}

template <class... Middle>
void ExerciseAnyCtxCreate(const Target& target,
                          int (*create)(CUcontext*, Middle...),
                          Middle... middle) {
  CUcontext context = nullptr;
  ASSERT_EQ(create(&context, middle...), 0);
  // One of the context that was current before on this device, one after.
  EXPECT_EQ(CountSamples(capture::SampleReason::kContext), 2);
  const fakes::Sample before = FakeRecorderGet().samples.front();
  const fakes::Sample after = FakeRecorderGet().samples.back();
  EXPECT_LT(after.free_bytes, before.free_bytes);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kContextCreate);
  EXPECT_EQ(event.handle, Number(context));
  EXPECT_EQ(event.device, 0);
  EXPECT_EQ(event.flags, 1u);
  EXPECT_EQ(cuCtxDestroy_v2(context), 0);
  FakeRecorderClear();
  EXPECT_EQ(create(nullptr, middle...), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextCreate).result,
            kInvalidValue);
}
template <class F>
void ExerciseCtxCreate(const Target& target, F* create) {
  ExerciseAnyCtxCreate(target, create, 0u, 0);
}
inline void ExerciseCtxCreateWithAffinity(
    const Target& target, int (*create)(CUcontext*, CUexecAffinityParam*, int,
                                        unsigned int, CUdevice)) {
  CUexecAffinityParam* none = nullptr;
  ExerciseAnyCtxCreate(target, create, none, 0, 0u, 0);
}
inline void ExerciseCtxCreateWithParams(const Target& target,
                                        int (*create)(CUcontext*,
                                                      CUctxCreateParams*,
                                                      unsigned int, CUdevice)) {
  CUctxCreateParams* none = nullptr;
  ExerciseAnyCtxCreate(target, create, none, 0u, 0);
}
inline void ExerciseCtxDestroy(const Target& target,
                               int (*destroy)(CUcontext)) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), 0);
  FakeRecorderClear();
  ASSERT_EQ(destroy(context), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextDestroy).handle,
            Number(context));
  EXPECT_EQ(destroy(context), 201);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextDestroy).result, 201);
}
inline void ExerciseGreenCtxCreate(const Target& target,
                                   int (*create)(CUgreenCtx*, CUdevResourceDesc,
                                                 CUdevice, unsigned int)) {
  CUgreenCtx context = nullptr;
  ASSERT_EQ(create(&context, nullptr, 0, 1), 0);
  EXPECT_EQ(CountSamples(capture::SampleReason::kContext), 1);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextCreate).handle,
            Number(context));
  EXPECT_EQ(create(nullptr, nullptr, 0, 1), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextCreate).result,
            kInvalidValue);
}
inline void ExerciseGreenCtxDestroy(const Target& target,
                                    int (*destroy)(CUgreenCtx)) {
  CUgreenCtx context = nullptr;
  ASSERT_EQ(cuGreenCtxCreate(&context, nullptr, 0, 1), 0);
  FakeRecorderClear();
  ASSERT_EQ(destroy(context), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextDestroy).handle,
            Number(context));
  EXPECT_NE(destroy(context), 0);
  EXPECT_NE(TakeEvent(target, DeviceKind::kContextDestroy).result, 0);
}
inline void ExerciseCtxSetLimit(const Target& target,
                                int (*set)(CUlimit, size_t)) {
  constexpr CUlimit kHeap = 2;
  ASSERT_EQ(set(kHeap, 64 << 20), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kLimit);
  EXPECT_EQ(event.flags, 2u);
  EXPECT_EQ(event.size, 64u << 20);
  EXPECT_EQ(event.device, 0);
  EXPECT_EQ(set(kHeap, kTooMuch), kOutOfMemory);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kLimit).result, kOutOfMemory);
}
inline void ExerciseDeviceSetLimit(const Target& target,
                                   int (*set)(CUlimit, size_t)) {
  ExerciseCtxSetLimit(target, set);
}

// ---- code: the fake takes 1 MiB for each ----
template <class H, class I, class... Rest>
void ExerciseAnyLoad(const Target& target, int (*load)(H*, const I*, Rest...)) {
  H module = nullptr;
  char image[16] = "image";
  ASSERT_EQ(load(&module, reinterpret_cast<const I*>(image), Rest{}...), 0);
  EXPECT_EQ(CountSamples(capture::SampleReason::kModule), 1);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kModuleLoad);
  EXPECT_EQ(event.handle, Number(module));
  EXPECT_EQ(event.size, 1u << 20);
  EXPECT_NE(event.free_bytes, 0u);  // what was left afterwards
  EXPECT_EQ(load(&module, nullptr, Rest{}...), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kModuleLoad).result, kInvalidValue);
}
template <class F>
void ExerciseModuleLoad(const Target& target, F* load) {
  ExerciseAnyLoad(target, load);
}
template <class F>
void ExerciseModuleLoadDataEx(const Target& target, F* load) {
  ExerciseAnyLoad(target, load);
}
template <class F>
void ExerciseLibraryLoad(const Target& target, F* load) {
  ExerciseAnyLoad(target, load);
}
template <class H>
void ExerciseAnyUnload(const Target& target, int (*unload)(H), H module) {
  ASSERT_EQ(unload(module), 0);
  EXPECT_EQ(CountSamples(capture::SampleReason::kModule), 1);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kModuleUnload);
  EXPECT_EQ(event.handle, Number(module));
  EXPECT_EQ(event.size, 1u << 20);
  EXPECT_NE(unload(module), 0);
  EXPECT_NE(TakeEvent(target, DeviceKind::kModuleUnload).result, 0);
}
inline void ExerciseModuleUnload(const Target& target,
                                 int (*unload)(CUmodule)) {
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoad(&module, "x"), 0);
  FakeRecorderClear();
  ExerciseAnyUnload(target, unload, module);
}
inline void ExerciseLibraryUnload(const Target& target,
                                  int (*unload)(CUlibrary)) {
  CUlibrary library = nullptr;
  ASSERT_EQ(cuLibraryLoadFromFile(&library, "x", nullptr, nullptr, 0, nullptr,
                                  nullptr, 0),
            0);
  FakeRecorderClear();
  ExerciseAnyUnload(target, unload, library);
}

// ---- what CUDA takes for itself: in the fake 2 MiB for code when first asked
// about, 4 more for local memory at the first launch, 8 for the first stream
// ----
inline CUfunction NewFunction() {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleLoad(&module, "x"), 0);
  EXPECT_EQ(cuModuleGetFunction(&function, module, "kernel"), 0);
  FakeRecorderClear();
  return function;
}

// The first `use` loads, as is measured and told once; the second is silent.
template <class Use>
void ExpectGrowthOnce(const Target& target, uint64_t handle, uint64_t bytes,
                      Use use) {
  ASSERT_EQ(use(), 0);
  // The sample that the size comes from follows.
  EXPECT_EQ(CountSamples(capture::SampleReason::kModule), 1);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kModuleLoad);
  EXPECT_EQ(event.size, bytes);
  EXPECT_EQ(event.handle, handle);
  EXPECT_EQ(event.device, 0);
  ASSERT_EQ(use(), 0);
  ExpectNoEvent(DeviceKind::kModuleLoad);
}

constexpr uint64_t kCodeBytes = 2 << 20;
constexpr uint64_t kLaunchBytes = 6 << 20;

inline void ExerciseModuleGetFunction(const Target&,
                                      int (*get)(CUfunction*, CUmodule,
                                                 const char*)) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(cuModuleLoad(&module, "x"), 0);
  FakeRecorderClear();
  EXPECT_EQ(get(&function, module, "kernel"), 0);
  EXPECT_NE(function, nullptr);
  EXPECT_EQ(get(nullptr, module, "kernel"), kInvalidValue);
  ExpectNoEvent(DeviceKind::kModuleLoad);  // it takes nothing here
}
inline void ExerciseModuleGetGlobal(const Target& target,
                                    int (*get)(CUdeviceptr*, size_t*, CUmodule,
                                               const char*)) {
  CUmodule module = nullptr;
  ASSERT_EQ(cuModuleLoad(&module, "x"), 0);
  FakeRecorderClear();
  ExpectGrowthOnce(target, Number(module), kCodeBytes,
                   [&] { return get(nullptr, nullptr, module, "x"); });
}
template <class Use>
void ExerciseLibraryUse(const Target& target, Use use) {
  CUlibrary library = nullptr;
  ASSERT_EQ(cuLibraryLoadFromFile(&library, "x", nullptr, nullptr, 0, nullptr,
                                  nullptr, 0),
            0);
  FakeRecorderClear();
  ExpectGrowthOnce(target, Number(library), kCodeBytes,
                   [&] { return use(library); });
}
inline void ExerciseLibraryGetModule(const Target& target,
                                     int (*get)(CUmodule*, CUlibrary)) {
  ExerciseLibraryUse(target, [&](CUlibrary library) {
    CUmodule module = nullptr;
    return get(&module, library);
  });
}
inline void ExerciseLibraryGetGlobal(const Target& target,
                                     int (*get)(CUdeviceptr*, size_t*,
                                                CUlibrary, const char*)) {
  ExerciseLibraryUse(target, [&](CUlibrary library) {
    return get(nullptr, nullptr, library, "x");
  });
}
inline void ExerciseKernelGetFunction(const Target& target,
                                      int (*get)(CUfunction*, CUkernel)) {
  auto* const kernel = reinterpret_cast<CUkernel>(NewFunction());
  CUfunction function = nullptr;
  ExpectGrowthOnce(target, Number(kernel), kCodeBytes,
                   [&] { return get(&function, kernel); });
  EXPECT_EQ(get(nullptr, kernel), kInvalidValue);
}
inline void ExerciseKernelGetAttribute(const Target& target,
                                       int (*get)(int*, CUfunction_attribute,
                                                  CUkernel, CUdevice)) {
  auto* const kernel = reinterpret_cast<CUkernel>(NewFunction());
  int value = 0;
  ExpectGrowthOnce(target, Number(kernel), kCodeBytes,
                   [&] { return get(&value, 0, kernel, 0); });
}
inline void ExerciseKernelSetAttribute(const Target& target,
                                       int (*set)(CUfunction_attribute, int,
                                                  CUkernel, CUdevice)) {
  auto* const kernel = reinterpret_cast<CUkernel>(NewFunction());
  ExpectGrowthOnce(target, Number(kernel), kCodeBytes,
                   [&] { return set(0, 1, kernel, 0); });
}
inline void ExerciseFuncGetAttribute(const Target& target,
                                     int (*get)(int*, CUfunction_attribute,
                                                CUfunction)) {
  const CUfunction function = NewFunction();
  int value = 0;
  ExpectGrowthOnce(target, Number(function), kCodeBytes,
                   [&] { return get(&value, 0, function); });
}
inline void ExerciseFuncSetAttribute(const Target& target,
                                     int (*set)(CUfunction,
                                                CUfunction_attribute, int)) {
  const CUfunction function = NewFunction();
  ExpectGrowthOnce(target, Number(function), kCodeBytes,
                   [&] { return set(function, 0, 1); });
}
inline void ExerciseFuncLoad(const Target& target, int (*load)(CUfunction)) {
  const CUfunction function = NewFunction();
  ExpectGrowthOnce(target, Number(function), kCodeBytes,
                   [&] { return load(function); });
  EXPECT_NE(load(nullptr), 0);
  ExpectNoEvent(DeviceKind::kModuleLoad);
}
// Asking first loads the code; what the launch takes beyond it is its own.
template <class Launch>
void ExerciseAnyLaunch(const Target& target, Launch launch) {
  CUfunction function = NewFunction();
  ExpectGrowthOnce(target, Number(function), kLaunchBytes,
                   [&] { return launch(function); });
  function = NewFunction();
  ASSERT_EQ(cuFuncLoad(function), 0);
  FakeRecorderClear();
  ExpectGrowthOnce(target, Number(function), kLaunchBytes - kCodeBytes,
                   [&] { return launch(function); });
  EXPECT_NE(launch(nullptr), 0);
  ExpectNoEvent(DeviceKind::kModuleLoad);
}
template <class F>
void ExerciseLaunchKernel(const Target& target, F* launch) {
  ExerciseAnyLaunch(target, [&](CUfunction function) {
    return launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  });
}
template <class F>
void ExerciseLaunchKernelEx(const Target& target, F* launch) {
  ExerciseAnyLaunch(target, [&](CUfunction function) {
    return launch(nullptr, function, nullptr, nullptr);
  });
}
template <class F>
void ExerciseLaunchCooperativeKernel(const Target& target, F* launch) {
  ExerciseAnyLaunch(target, [&](CUfunction function) {
    return launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr);
  });
}
template <class F>
void ExerciseStreamCreate(const Target&, F* create) {
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreateWithPriority(&stream, 0, 0), 0);
  FakeRecorderClear();
  ASSERT_EQ(create(&stream, 0), 0);
  ExpectNoEvent(DeviceKind::kModuleLoad);
  EXPECT_EQ(create(nullptr, 0), kInvalidValue);
}
template <class F>
void ExerciseStreamCreateWithPriority(const Target&, F* create) {
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, 0), 0);
  FakeRecorderClear();
  ASSERT_EQ(create(&stream, 0, 0), 0);
  ExpectNoEvent(DeviceKind::kModuleLoad);
  EXPECT_EQ(create(nullptr, 0, 0), kInvalidValue);
}
inline void ExerciseCtxEnablePeerAccess(const Target& target,
                                        int (*enable)(CUcontext,
                                                      unsigned int)) {
  auto* const peer = reinterpret_cast<CUcontext>(NewFunction());
  ASSERT_EQ(enable(peer, 0), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kModuleLoad).size, kCodeBytes);
}

// ---- look-ups: what they return is tested on every row elsewhere ----
template <class... Status>
void ExerciseAnyLookup(int (*get)(const char*, void**, int, uint64_t,
                                  Status...)) {
  void* found = nullptr;
  ASSERT_EQ(get("cuMemAlloc", &found, 3020, 0, Status{}...), 0);
  EXPECT_EQ(found, reinterpret_cast<void*>(&cuMemAlloc_v2));
  // Not ours: the driver's own.
  ASSERT_EQ(get("cuCtxSetCurrent", &found, 4000, 0, Status{}...), 0);
  EXPECT_NE(found, nullptr);
  EXPECT_EQ(get("cuMemAlloc", nullptr, 3020, 0, Status{}...), kInvalidValue);
  EXPECT_EQ(get(nullptr, &found, 3020, 0, Status{}...), kInvalidValue);
}
template <class F>
void ExerciseGetProcAddress(const Target&, F* get) {
  ExerciseAnyLookup(get);
}
template <class F>
void ExerciseGetProcAddressV2(const Target&, F* get) {
  ExerciseAnyLookup(get);
  void* found = &found;
  int status = 0;
  ASSERT_EQ(get("cuNoSuchThing", &found, 13000, 0, &status), 0);
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(status, 1);
}
template <class F>
void ExerciseGetDriverEntryPoint(const Target& target, F* get) {
  const bool per_thread = std::strstr(target.symbol, "_ptsz") != nullptr;
  void* found = nullptr;
  int status = 0;
  ASSERT_EQ(get("cuMemAllocAsync", &found, 0, &status), 0);
  EXPECT_EQ(found, per_thread ? reinterpret_cast<void*>(&cuMemAllocAsync_ptsz)
                              : reinterpret_cast<void*>(&cuMemAllocAsync));
  EXPECT_EQ(get(nullptr, &found, 0, &status), kInvalidValue);
}
template <class F>
void ExerciseGetDriverEntryPointByVersion(const Target& target, F* get) {
  const bool per_thread = std::strstr(target.symbol, "_ptsz") != nullptr;
  void* found = nullptr;
  int status = 0;
  ASSERT_EQ(get("cuMemAlloc", &found, 2000u, 0, &status), 0);
  EXPECT_EQ(found, reinterpret_cast<void*>(&cuMemAlloc));
  ASSERT_EQ(get("cuMemFreeAsync", &found, 12000u, 0, &status), 0);
  EXPECT_EQ(found, per_thread ? reinterpret_cast<void*>(&cuMemFreeAsync_ptsz)
                              : reinterpret_cast<void*>(&cuMemFreeAsync));
}

}  // namespace dstrace::hooks::testing

#endif  // DSTRACE_TESTS_HOOKS_EXERCISES_CONTEXT_H_
