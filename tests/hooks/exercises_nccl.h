// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_HOOKS_EXERCISES_NCCL_H_
#define DSTRACE_TESTS_HOOKS_EXERCISES_NCCL_H_

#include <string_view>

#include "tests/hooks/exercises.h"

namespace dstrace::hooks::testing {

extern "C" ncclResult_t ncclGetUniqueId(ncclUniqueId* id);

inline ncclUniqueId NewId() {
  ncclUniqueId id{};
  EXPECT_EQ(ncclGetUniqueId(&id), 0);
  return id;
}

// What the communicator took carries the call's name, and the communicator is
// one event.
inline DeviceEvent TakeCommunicator(const Target& target) {
  int buffers = 0;
  for (const DeviceEvent& event : FakeRecorderGet().events) {
    if (event.kind != DeviceKind::kPhysicalCreate) continue;
    EXPECT_STREQ(event.label, target.symbol);
    ++buffers;
  }
  EXPECT_GT(buffers, 0);
  return TakeEvent(target, DeviceKind::kCommunicator);
}

template <class... Config>
void ExerciseCommInitRank(const Target& target,
                          int (*init)(ncclComm_t*, int, ncclUniqueId, int,
                                      Config...)) {
  // 128 bytes by value: NCCL and we have to see the same ones.
  ncclComm_t one = nullptr;
  ncclComm_t two = nullptr;
  const ncclUniqueId id = NewId();
  ASSERT_EQ(init(&one, 8, id, 3, Config{}...), 0);
  const DeviceEvent first = TakeCommunicator(target);
  EXPECT_EQ(first.handle, Number(one));
  EXPECT_EQ(first.size, 8u);
  EXPECT_EQ(first.flags, 3u);
  ASSERT_EQ(init(&two, 8, NewId(), 3, Config{}...), 0);
  EXPECT_NE(TakeCommunicator(target).address, first.address);
  EXPECT_EQ(init(nullptr, 8, id, 3, Config{}...), 4);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kCommunicator).result, 4);
  EXPECT_EQ(ncclCommDestroy(one), 0);
  EXPECT_EQ(ncclCommDestroy(two), 0);
  FakeRecorderClear();
}
template <class F>
void ExerciseCommInitRankConfig(const Target& target, F* init) {
  ExerciseCommInitRank(target, init);
}
template <class F>
void ExerciseCommInitRankScalable(const Target& target, F* init) {
  ncclComm_t comm = nullptr;
  ncclUniqueId id = NewId();
  ASSERT_EQ(init(&comm, 16, 5, 1, &id, nullptr), 0);
  const DeviceEvent event = TakeCommunicator(target);
  EXPECT_EQ(event.size, 16u);
  EXPECT_EQ(event.flags, 5u);
  EXPECT_EQ(ncclCommDestroy(comm), 0);
  FakeRecorderClear();
}
template <class F>
void ExerciseCommInitAll(const Target& target, F* init) {
  ncclComm_t comms[2] = {};
  const int devices[2] = {1, 0};
  ASSERT_EQ(init(comms, 2, devices), 0);
  int seen = 0;
  for (const DeviceEvent& event : FakeRecorderGet().events) {
    if (event.kind != DeviceKind::kCommunicator) continue;
    EXPECT_STREQ(event.api, target.symbol);
    EXPECT_EQ(event.handle, Number(comms[event.flags]));
    EXPECT_EQ(event.device, devices[event.flags]);
    ++seen;
  }
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(ncclCommDestroy(comms[0]), 0);
  EXPECT_EQ(ncclCommDestroy(comms[1]), 0);
  FakeRecorderClear();
}
inline ncclComm_t NewComm() {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, 2, NewId(), 0), 0);
  FakeRecorderClear();
  return comm;
}
template <class F>
void ExerciseCommSplit(const Target& target, F* split) {
  ncclComm_t comm = NewComm();
  ncclComm_t part = nullptr;
  ASSERT_EQ(split(comm, 1, 7, &part, nullptr), 0);
  const DeviceEvent event = TakeCommunicator(target);
  EXPECT_EQ(event.handle, Number(part));
  EXPECT_EQ(event.address, Number(comm));
  EXPECT_EQ(event.offset, 1u);
  EXPECT_EQ(event.flags, 7u);
  EXPECT_EQ(ncclCommDestroy(part), 0);
  EXPECT_EQ(ncclCommDestroy(comm), 0);
  FakeRecorderClear();
}
template <class F>
void ExerciseCommEnd(const Target& target, F* end) {
  ncclComm_t comm = NewComm();
  ASSERT_EQ(end(comm), 0);
  const DeviceEvent event = TakeEvent(target, DeviceKind::kCommunicator);
  EXPECT_EQ(event.handle, Number(comm));
  EXPECT_EQ(event.size, 48u << 20);  // the fake's own account
  EXPECT_EQ(end(nullptr), 4);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kCommunicator).result, 4);
  if (target.symbol != std::string_view("ncclCommFinalize")) return;
  EXPECT_EQ(ncclCommDestroy(comm), 0);  // it is still there
  FakeRecorderClear();
}

}  // namespace dstrace::hooks::testing

#endif  // DSTRACE_TESTS_HOOKS_EXERCISES_NCCL_H_
