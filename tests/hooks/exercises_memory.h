// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_HOOKS_EXERCISES_MEMORY_H_
#define DSTRACE_TESTS_HOOKS_EXERCISES_MEMORY_H_

#include "tests/hooks/exercises.h"

namespace dstrace::hooks::testing {

// A failure keeps the size asked for, the error, and what was free.
inline void ExpectFailure(const DeviceEvent& event, int result, size_t size) {
  EXPECT_EQ(event.result, result);
  EXPECT_EQ(event.size, size);
  EXPECT_EQ(event.address, 0u);
  EXPECT_GT(event.total_bytes, 0u);
  EXPECT_GT(event.free_bytes, 0u);
  EXPECT_LE(event.free_bytes, event.total_bytes);
}

template <class P, class S, class... Flags>
void ExerciseAnyAlloc(const Target& target, int (*alloc)(P*, S, Flags...),
                      DeviceKind kind, Flags... flags) {
  P out{};
  ASSERT_EQ(alloc(&out, S{1000}, flags...), 0);
  const DeviceEvent event = TakeEvent(target, kind);
  EXPECT_EQ(event.address, Number(out));
  EXPECT_EQ(event.size, 1000u);
  EXPECT_EQ(event.device, 0);
  EXPECT_EQ(event.result, 0);

  EXPECT_EQ(alloc(nullptr, S{16}, flags...), kInvalidValue);
  ExpectFailure(TakeEvent(target, kind), kInvalidValue, 16);
  if constexpr (sizeof(S) == 8) {
    P none{};
    EXPECT_EQ(alloc(&none, kTooMuch, flags...), kOutOfMemory);
    ExpectFailure(TakeEvent(target, kind), kOutOfMemory, kTooMuch);
  }
  if constexpr (sizeof(P) == 8) {
    EXPECT_EQ(cuMemFree_v2(Number(out)), 0);
  } else {
    EXPECT_EQ(cuMemFree(out), 0);
  }
  FakeRecorderClear();
}

template <class F>
void ExerciseMemAlloc(const Target& target, F* alloc) {
  ExerciseAnyAlloc(target, alloc, DeviceKind::kAlloc);
}
template <class F>
void ExerciseMalloc(const Target& target, F* alloc) {
  ExerciseAnyAlloc(target, alloc, DeviceKind::kAlloc);
}
template <class F>
void ExerciseMemAllocManaged(const Target& target, F* alloc) {
  ExerciseAnyAlloc(target, alloc, DeviceKind::kManagedAlloc, 1u);
}
template <class F>
void ExerciseMallocManaged(const Target& target, F* alloc) {
  ExerciseMemAllocManaged(target, alloc);
}

template <class P, class S, class... Rest>
void ExerciseMemAllocPitch(const Target& target,
                           int (*alloc)(P*, S*, S, S, Rest...)) {
  P out{};
  S pitch{};
  ASSERT_EQ(alloc(&out, &pitch, S{100}, S{7}, Rest{4}...), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kAlloc);
  EXPECT_EQ(event.address, Number(out));
  EXPECT_GE(pitch, S{100});
  EXPECT_EQ(event.size, pitch * 7);
  EXPECT_EQ(alloc(&out, nullptr, S{100}, S{7}, Rest{4}...), kInvalidValue);
  ExpectFailure(TakeEvent(target, DeviceKind::kAlloc), kInvalidValue, 700);
}
template <class F>
void ExerciseMallocPitch(const Target& target, F* alloc) {
  ExerciseMemAllocPitch(target, alloc);
}

inline void ExerciseMalloc3D(const Target& target,
                             int (*alloc)(cudaPitchedPtr*, cudaExtent)) {
  cudaPitchedPtr out{};
  ASSERT_EQ(alloc(&out, {100, 3, 2}), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kAlloc);
  EXPECT_EQ(event.address, Number(out.ptr));
  EXPECT_EQ(event.size, out.pitch * 6);
  EXPECT_EQ(alloc(nullptr, {100, 3, 2}), kInvalidValue);
  ExpectFailure(TakeEvent(target, DeviceKind::kAlloc), kInvalidValue, 600);
}

// ---- frees: the driver's answers, and each is recorded but that of null ----
template <class P>
void ExerciseAnyFree(const Target& target, int (*free)(P), P live,
                     DeviceKind kind, int error) {
  const uint64_t before = capture::DeviceEvent{}.time;
  ASSERT_EQ(free(live), 0);
  const DeviceEvent event = TakeEvent(target, kind);
  EXPECT_EQ(event.address, Number(live));
  EXPECT_GT(event.time, before);

  EXPECT_EQ(free(live), error);  // twice
  const DeviceEvent twice = TakeEvent(target, kind);
  EXPECT_EQ(twice.result, error);
  EXPECT_EQ(twice.address, Number(live));

  P foreign{};
  std::memset(&foreign, 0x11, sizeof foreign);
  EXPECT_EQ(free(foreign), error);
  EXPECT_EQ(TakeEvent(target, kind).address, Number(foreign));
}

template <class P>
void ExerciseMemFree(const Target& target, int (*free)(P)) {
  CUdeviceptr live = 0;
  ASSERT_EQ(cuMemAlloc_v2(&live, 4096), 0);
  FakeRecorderClear();
  P argument;
  if constexpr (std::is_pointer_v<P>) {
    argument = reinterpret_cast<P>(live);
  } else {
    argument = static_cast<P>(live);
  }
  ExerciseAnyFree(target, free, argument, DeviceKind::kFree, kInvalidValue);
  EXPECT_EQ(free(P{}), 0);
  ExpectNoEvent(DeviceKind::kFree);
}
template <class F>
void ExerciseFree(const Target& target, F* free) {
  ExerciseMemFree(target, free);
}

inline const CUstream kStream = reinterpret_cast<CUstream>(0x51);

template <class P>
void ExerciseMemAllocAsync(const Target& target,
                           int (*alloc)(P*, size_t, CUstream)) {
  P out{};
  ASSERT_EQ(alloc(&out, 1000, kStream), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kPoolAlloc);
  EXPECT_EQ(event.address, Number(out));
  EXPECT_EQ(event.size, 1000u);
  EXPECT_EQ(event.stream, Number(kStream));
  EXPECT_EQ(alloc(nullptr, 8, kStream), kInvalidValue);
  ExpectFailure(TakeEvent(target, DeviceKind::kPoolAlloc), kInvalidValue, 8);
  EXPECT_EQ(alloc(&out, kTooMuch, kStream), kOutOfMemory);
  ExpectFailure(TakeEvent(target, DeviceKind::kPoolAlloc), kOutOfMemory,
                kTooMuch);
}
template <class F>
void ExerciseMallocAsync(const Target& target, F* alloc) {
  ExerciseMemAllocAsync(target, alloc);
}

template <class P>
void ExerciseMemAllocFromPoolAsync(const Target& target,
                                   int (*alloc)(P*, size_t, CUmemoryPool,
                                                CUstream)) {
  const auto pool = reinterpret_cast<CUmemoryPool>(0x4000);
  P out{};
  ASSERT_EQ(alloc(&out, 1000, pool, kStream), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kPoolAlloc);
  EXPECT_EQ(event.address, Number(out));
  EXPECT_EQ(event.pool, Number(pool));
  EXPECT_EQ(event.stream, Number(kStream));
  EXPECT_EQ(alloc(&out, 8, nullptr, kStream), kInvalidValue);
  ExpectFailure(TakeEvent(target, DeviceKind::kPoolAlloc), kInvalidValue, 8);
}
template <class F>
void ExerciseMallocFromPoolAsync(const Target& target, F* alloc) {
  ExerciseMemAllocFromPoolAsync(target, alloc);
}

template <class P>
void ExerciseMemFreeAsync(const Target& target, int (*free)(P, CUstream)) {
  CUdeviceptr live = 0;
  ASSERT_EQ(cuMemAllocAsync(&live, 4096, kStream), 0);
  FakeRecorderClear();
  P argument{};
  std::memcpy(&argument, &live, sizeof argument);
  ASSERT_EQ(free(argument, kStream), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kPoolFree);
  EXPECT_EQ(event.address, live);
  EXPECT_EQ(event.stream, Number(kStream));
  EXPECT_EQ(free(argument, kStream), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kPoolFree).result, kInvalidValue);
}
template <class F>
void ExerciseFreeAsync(const Target& target, F* free) {
  ExerciseMemFreeAsync(target, free);
}

// ---- pools ----
inline CUmemoryPool NewPool() {
  CUmemPoolProps props{};
  props.location = {kLocationDevice, 1};
  CUmemoryPool pool = nullptr;
  EXPECT_EQ(cuMemPoolCreate(&pool, &props), 0);
  FakeRecorderClear();
  return pool;
}
inline void ExerciseMemPoolCreate(const Target& target,
                                  int (*create)(CUmemoryPool*,
                                                const CUmemPoolProps*)) {
  CUmemPoolProps props{};
  props.location = {kLocationDevice, 1};
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(create(&pool, &props), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kPoolCreate);
  EXPECT_EQ(event.pool, Number(pool));
  EXPECT_EQ(event.device, 1);
  EXPECT_EQ(create(&pool, nullptr), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kPoolCreate).result, kInvalidValue);
}
inline void ExerciseMemPoolDestroy(const Target& target,
                                   int (*destroy)(CUmemoryPool)) {
  CUmemoryPool pool = NewPool();
  ASSERT_EQ(destroy(pool), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kPoolDestroy).pool, Number(pool));
  EXPECT_NE(destroy(pool), 0);
  EXPECT_NE(TakeEvent(target, DeviceKind::kPoolDestroy).result, 0);
}
inline void ExerciseMemPoolTrimTo(const Target& target,
                                  int (*trim)(CUmemoryPool, size_t)) {
  CUdeviceptr live = 0;
  ASSERT_EQ(cuMemAllocAsync(&live, 8192, kStream), 0);
  CUmemoryPool pool = NewPool();
  ASSERT_EQ(trim(pool, 4096), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kPoolTrim);
  EXPECT_EQ(event.pool, Number(pool));
  EXPECT_EQ(event.size, 4096u);
  EXPECT_GE(event.offset, 8192u);  // what pools still hold
  EXPECT_EQ(trim(nullptr, 0), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kPoolTrim).result, kInvalidValue);
}
template <class Flags>
void ExerciseMemPoolImport(const Target& target,
                           int (*import)(CUmemoryPool*, void*, int, Flags)) {
  CUmemoryPool pool = nullptr;
  int descriptor = 0;
  ASSERT_EQ(import(&pool, &descriptor, 1, Flags{0}), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kPoolCreate);
  EXPECT_EQ(event.pool, Number(pool));
  EXPECT_EQ(event.flags, 1u);
  EXPECT_EQ(import(&pool, nullptr, 1, Flags{0}), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kPoolCreate).result, kInvalidValue);
}
template <class P, class E>
void ExerciseMemPoolImportPointer(const Target& target,
                                  int (*import)(P*, CUmemoryPool, E*)) {
  P out{};
  char data[64] = {};
  CUmemoryPool pool = NewPool();
  ASSERT_EQ(import(&out, pool, reinterpret_cast<E*>(data)), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kIpcOpen).address, Number(out));
  EXPECT_EQ(import(nullptr, pool, nullptr), kInvalidValue);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kIpcOpen).result, kInvalidValue);
}

// ---- pinned host memory ----
template <class S, class... Flags>
void ExerciseMemHostAlloc(const Target& target,
                          int (*alloc)(void**, S, Flags...)) {
  void* out = nullptr;
  ASSERT_EQ(alloc(&out, S{8192}, Flags{1}...), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kHostAlloc);
  EXPECT_EQ(event.address, Number(out));
  EXPECT_EQ(event.size, 8192u);
  EXPECT_EQ(event.device, capture::kDeviceHost);
  EXPECT_EQ(event.flags, sizeof...(Flags));
  std::memset(out, 1, 8192);
  EXPECT_EQ(cuMemFreeHost(out), 0);
  FakeRecorderClear();
  EXPECT_EQ(alloc(nullptr, S{8}, Flags{0}...), kInvalidValue);
  ExpectFailure(TakeEvent(target, DeviceKind::kHostAlloc), kInvalidValue, 8);
}
template <class F>
void ExerciseMemAllocHost(const Target& target, F* alloc) {
  ExerciseMemHostAlloc(target, alloc);
}
template <class F>
void ExerciseMallocHost(const Target& target, F* alloc) {
  ExerciseMemHostAlloc(target, alloc);
}
template <class F>
void ExerciseHostAlloc(const Target& target, F* alloc) {
  ExerciseMemHostAlloc(target, alloc);
}
inline void ExerciseMemFreeHost(const Target& target, int (*free)(void*)) {
  void* live = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&live, 4096, 0), 0);
  FakeRecorderClear();
  ExerciseAnyFree(target, free, live, DeviceKind::kHostFree, kInvalidValue);
}
inline void ExerciseFreeHost(const Target& target, int (*free)(void*)) {
  ExerciseMemFreeHost(target, free);
  EXPECT_EQ(free(nullptr), 0);
  ExpectNoEvent(DeviceKind::kHostFree);
}
inline void ExerciseMemHostRegister(const Target& target,
                                    int (*pin)(void*, size_t, unsigned int)) {
  char memory[64];
  ASSERT_EQ(pin(memory, sizeof memory, 2), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kHostRegister);
  EXPECT_EQ(event.address, Number(&memory[0]));
  EXPECT_EQ(event.size, sizeof memory);
  EXPECT_EQ(event.flags, 2u);
  EXPECT_EQ(pin(memory, sizeof memory, 2), 712);  // already registered
  EXPECT_EQ(TakeEvent(target, DeviceKind::kHostRegister).result, 712);
  EXPECT_EQ(cuMemHostUnregister(memory), 0);
  FakeRecorderClear();
}
inline void ExerciseHostRegister(const Target& target,
                                 int (*pin)(void*, size_t, unsigned int)) {
  ExerciseMemHostRegister(target, pin);
}
inline void ExerciseMemHostUnregister(const Target& target,
                                      int (*unpin)(void*)) {
  char memory[64];
  ASSERT_EQ(cuMemHostRegister_v2(memory, sizeof memory, 0), 0);
  FakeRecorderClear();
  void* live = memory;
  ExerciseAnyFree(target, unpin, live, DeviceKind::kHostUnregister, 713);
}
inline void ExerciseHostUnregister(const Target& target, int (*unpin)(void*)) {
  ExerciseMemHostUnregister(target, unpin);
}

// ---- touching managed memory, and the program's own question ----
template <class T, class... Rest>
void ExerciseMemset(const Target&,
                    int (*set)(CUdeviceptr, T, size_t, Rest...)) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAllocManaged(&address, 4096, 1), 0);
  EXPECT_EQ(set(address, T{1}, 4096 / sizeof(T), Rest{}...), 0);
  EXPECT_EQ(set(0, T{1}, 1, Rest{}...), kInvalidValue);
  EXPECT_EQ(cuMemFree_v2(address), 0);
  FakeRecorderClear();
}
inline void ExerciseMemGetInfo(const Target&, int (*ask)(size_t*, size_t*)) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, 4096), 0);
  FakeRecorderClear();
  size_t free_bytes = 0;
  size_t total = 0;
  ASSERT_EQ(ask(&free_bytes, &total), 0);
  EXPECT_EQ(ask(nullptr, &total), kInvalidValue);
  EXPECT_EQ(cuMemFree_v2(address), 0);
  ASSERT_EQ(ask(&free_bytes, &total), 0);  // another answer
  const auto& samples = FakeRecorderGet().samples;
  ASSERT_FALSE(samples.empty());
  EXPECT_EQ(samples.back().free_bytes, free_bytes);
  EXPECT_EQ(samples.back().total_bytes, total);
  EXPECT_TRUE(FakeRecorderGet().events.size() == 1);  // the free
  FakeRecorderClear();
}

}  // namespace dstrace::hooks::testing

#endif  // DSTRACE_TESTS_HOOKS_EXERCISES_MEMORY_H_
