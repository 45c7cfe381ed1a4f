// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_TESTS_HOOKS_EXERCISES_GRAPH_H_
#define DSTRACE_TESTS_HOOKS_EXERCISES_GRAPH_H_

// Graphs, stream capture, CUDA events; and the runtime functions that are only
// labels, each by the event that has to appear beneath it.

#include "tests/hooks/exercises.h"
#include "tests/hooks/exercises_context.h"

namespace dstrace::hooks::testing {

inline CUgraph NewGraph() {
  CUgraph graph = nullptr;
  EXPECT_EQ(cuGraphCreate(&graph, 0), 0);
  return graph;
}
inline CUgraphExec NewExec() {
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, NewGraph(), 0), 0);
  FakeRecorderClear();
  return exec;
}
inline DeviceEvent TakeGraphEvent(const Target& target) {
  return TakeEvent(target, DeviceKind::kGraph);
}

template <class F>
void ExerciseGraphAddMemAllocNode(const Target& target, F* add) {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.bytesize = 5000;
  CUgraph graph = NewGraph();
  CUgraphNode node = nullptr;
  ASSERT_EQ(add(&node, graph, nullptr, 0, &params), 0);
  const DeviceEvent event = TakeGraphEvent(target);
  EXPECT_EQ(event.handle, Number(graph));
  EXPECT_EQ(event.address, params.dptr);
  EXPECT_EQ(event.size, 5000u);
  EXPECT_EQ(add(&node, graph, nullptr, 0, nullptr), kInvalidValue);
  EXPECT_EQ(TakeGraphEvent(target).result, kInvalidValue);
}
template <class P>
void ExerciseGraphAddMemFreeNode(const Target& target,
                                 int (*add)(CUgraphNode*, CUgraph,
                                            const CUgraphNode*, size_t, P)) {
  CUgraph graph = NewGraph();
  CUgraphNode node = nullptr;
  P address{};
  std::memset(&address, 0x22, sizeof address);
  ASSERT_EQ(add(&node, graph, nullptr, 0, address), 0);
  const DeviceEvent event = TakeGraphEvent(target);
  EXPECT_EQ(event.handle, Number(graph));
  EXPECT_EQ(event.address, Number(address));
  EXPECT_EQ(add(&node, graph, nullptr, 0, P{}), kInvalidValue);
  EXPECT_EQ(TakeGraphEvent(target).result, kInvalidValue);
}
// `add(node, graph, params)` leaves out what does not matter here.
template <class Add>
void ExerciseAnyAddNode(const Target& target, Add add) {
  CUgraphNodeParams params{};
  CUgraph graph = NewGraph();
  CUgraphNode node = nullptr;
  params.type = kGraphNodeMemAlloc;
  params.alloc.bytesize = 7000;
  ASSERT_EQ(add(&node, graph, &params), 0);
  const DeviceEvent alloc = TakeGraphEvent(target);
  EXPECT_EQ(alloc.size, 7000u);
  EXPECT_EQ(alloc.address, params.alloc.dptr);
  EXPECT_EQ(alloc.flags, uint64_t{kGraphNodeMemAlloc});
  params.type = kGraphNodeMemFree;
  params.free_dptr = 0x1234;
  ASSERT_EQ(add(&node, graph, &params), 0);
  EXPECT_EQ(TakeGraphEvent(target).address, 0x1234u);
  params.type = 0;  // a kernel: no memory
  ASSERT_EQ(add(&node, graph, &params), 0);
  ExpectNoEvent(DeviceKind::kGraph);
  EXPECT_EQ(add(nullptr, graph, &params), kInvalidValue);
  EXPECT_EQ(TakeGraphEvent(target).result, kInvalidValue);
}
template <class P>
void ExerciseGraphAddNode(const Target& target,
                          int (*add)(CUgraphNode*, CUgraph, const CUgraphNode*,
                                     size_t, P*)) {
  ExerciseAnyAddNode(target, [add](CUgraphNode* node, CUgraph graph,
                                   CUgraphNodeParams* params) {
    return add(node, graph, nullptr, 0, reinterpret_cast<P*>(params));
  });
}
template <class P, class E>
void ExerciseGraphAddNodeWithEdges(const Target& target,
                                   int (*add)(CUgraphNode*, CUgraph,
                                              const CUgraphNode*, const E*,
                                              size_t, P*)) {
  ExerciseAnyAddNode(target, [add](CUgraphNode* node, CUgraph graph,
                                   CUgraphNodeParams* params) {
    return add(node, graph, nullptr, nullptr, 0, reinterpret_cast<P*>(params));
  });
}

template <class... Rest>
void ExerciseAnyInstantiate(const Target& target,
                            int (*make)(CUgraphExec*, CUgraph, Rest...),
                            Rest... rest) {
  CUgraph graph = NewGraph();
  CUgraphExec exec = nullptr;
  ASSERT_EQ(make(&exec, graph, rest...), 0);
  const DeviceEvent event = TakeGraphEvent(target);
  EXPECT_EQ(event.handle, Number(exec));
  EXPECT_EQ(event.address, Number(graph));
  EXPECT_EQ(make(&exec, nullptr, rest...), kInvalidValue);
  EXPECT_EQ(TakeGraphEvent(target).result, kInvalidValue);
}
inline void ExerciseGraphInstantiateWithLog(const Target& target,
                                            int (*make)(CUgraphExec*, CUgraph,
                                                        CUgraphNode*, char*,
                                                        size_t)) {
  CUgraphNode* node = nullptr;
  char* log = nullptr;
  ExerciseAnyInstantiate(target, make, node, log, size_t{0});
}
inline void ExerciseGraphInstantiateWithFlags(const Target& target,
                                              int (*make)(CUgraphExec*, CUgraph,
                                                          unsigned long long)) {
  ExerciseAnyInstantiate(target, make, 0ULL);
}
template <class P>
void ExerciseGraphInstantiateWithParams(const Target& target,
                                        int (*make)(CUgraphExec*, CUgraph,
                                                    P*)) {
  char params[64] = {};
  ExerciseAnyInstantiate(target, make, reinterpret_cast<P*>(params));
}
template <class H>
void ExerciseGraphEnd(const Target& target, int (*destroy)(H), H graph) {
  FakeRecorderClear();
  ASSERT_EQ(destroy(graph), 0);
  EXPECT_EQ(TakeGraphEvent(target).handle, Number(graph));
  EXPECT_NE(destroy(graph), 0);
  EXPECT_NE(TakeGraphEvent(target).result, 0);
}
template <class F>
void ExerciseGraphExecDestroy(const Target& target, F* destroy) {
  ExerciseGraphEnd(target, destroy, NewExec());
}
template <class F>
void ExerciseGraphDestroy(const Target& target, F* destroy) {
  ExerciseGraphEnd(target, destroy, NewGraph());
}
inline void ExerciseGraphLaunch(const Target& target,
                                int (*launch)(CUgraphExec, CUstream)) {
  CUgraphExec exec = NewExec();
  ASSERT_EQ(launch(exec, nullptr), 0);
  EXPECT_EQ(TakeGraphEvent(target).handle, Number(exec));
  EXPECT_EQ(launch(nullptr, nullptr), kInvalidValue);
  EXPECT_EQ(TakeGraphEvent(target).result, kInvalidValue);
}
inline void ExerciseGraphUpload(const Target& target,
                                int (*upload)(CUgraphExec, CUstream)) {
  ExerciseGraphLaunch(target, upload);
}
inline void ExerciseDeviceGraphMemTrim(const Target& target,
                                       int (*trim)(CUdevice)) {
  ASSERT_EQ(trim(1), 0);
  EXPECT_EQ(TakeGraphEvent(target).device, 1);
  EXPECT_EQ(trim(99), 101);
  EXPECT_EQ(TakeGraphEvent(target).result, 101);
}

// ---- capture. The fake ruins it if anybody asks for memory meanwhile. ----
inline const CUstream kCaptured = reinterpret_cast<CUstream>(0x61);

template <class... Rest>
void ExerciseAnyBegin(const Target& target, int (*begin)(CUstream, Rest...)) {
  ASSERT_EQ(begin(kCaptured, Rest{}...), 0);
  EXPECT_EQ(TakeGraphEvent(target).stream, Number(kCaptured));
  CUdeviceptr inside = 0;
  EXPECT_EQ(cuMemAlloc_v2(&inside, size_t{64} << 20), 0);
  EXPECT_TRUE(FakeRecorderGet().samples.empty());
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(kCaptured, &graph), 0);
  EXPECT_EQ(cuMemFree_v2(inside), 0);
  EXPECT_EQ(cuMemAlloc_v2(&inside, size_t{64} << 20), 0);
  EXPECT_FALSE(FakeRecorderGet().samples.empty());
  EXPECT_EQ(cuMemFree_v2(inside), 0);
  FakeRecorderClear();
  EXPECT_NE(begin(nullptr, Rest{}...), 0);
  EXPECT_NE(TakeGraphEvent(target).result, 0);
}
template <class F>
void ExerciseStreamBeginCapture(const Target& target, F* begin) {
  ExerciseAnyBegin(target, begin);
}
template <class F>
void ExerciseStreamBeginCaptureV1(const Target& target, F* begin) {
  ExerciseAnyBegin(target, begin);
}
template <class F>
void ExerciseStreamBeginCaptureToGraph(const Target& target, F* begin) {
  ExerciseAnyBegin(target, begin);
}
inline void ExerciseStreamEndCapture(const Target& target,
                                     int (*end)(CUstream, CUgraph*)) {
  ASSERT_EQ(cuStreamBeginCapture_v2(kCaptured, 0), 0);
  FakeRecorderClear();
  CUgraph graph = nullptr;
  ASSERT_EQ(end(kCaptured, &graph), 0);
  const DeviceEvent event = TakeGraphEvent(target);
  EXPECT_EQ(event.handle, Number(graph));
  EXPECT_EQ(event.stream, Number(kCaptured));
  EXPECT_EQ(end(kCaptured, &graph), 401);
  EXPECT_EQ(TakeGraphEvent(target).result, 401);
}

// ---- CUDA events: not torch's, so nothing is to be recorded ----
template <class... Flags>
void ExerciseEventRecord(const Target&,
                         int (*record)(cudaEvent_t, CUstream, Flags...)) {
  EXPECT_EQ(record(nullptr, nullptr, Flags{}...), 0);
  EXPECT_TRUE(FakeRecorderGet().stream_events.empty());
}
template <class F>
void ExerciseEventRecordWithFlags(const Target& target, F* record) {
  ExerciseEventRecord(target, record);
}
inline void ExerciseEventQuery(const Target&, int (*query)(cudaEvent_t)) {
  EXPECT_EQ(query(nullptr), 0);
  EXPECT_TRUE(FakeRecorderGet().stream_events.empty());
}

// ---- labels: exercised as the driver function they stand for ----
inline void ExerciseLabelOnly(const Target& target, int (*set)(int)) {
  if (std::strcmp(target.symbol, "cudaSetDevice") != 0) {
    ExerciseDeviceGraphMemTrim(target, set);
    return;
  }
  ASSERT_EQ(set(kOther), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextCreate).device, kOther);
  ASSERT_EQ(set(0), 0);
  EXPECT_EQ(cuDevicePrimaryCtxReset_v2(kOther), 0);
  EXPECT_EQ(set(99), 101);
  FakeRecorderClear();
}
inline void ExerciseLabelOnly(const Target& target,
                              int (*init)(int, unsigned int, unsigned int)) {
  ASSERT_EQ(init(kOther, 0, 0), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextCreate).device, kOther);
  EXPECT_EQ(cuDevicePrimaryCtxReset_v2(kOther), 0);
  FakeRecorderClear();
}
inline void ExerciseLabelOnly(const Target& target, int (*reset)()) {
  ASSERT_EQ(reset(), 0);
  EXPECT_EQ(TakeEvent(target, DeviceKind::kContextDestroy).flags, 1u);
}
template <class P, class E>
void ExerciseLabelOnly(const Target& target,
                       int (*add)(CUgraphNode*, CUgraph, const CUgraphNode*,
                                  const E*, size_t, P*)) {
  ExerciseGraphAddNodeWithEdges(target, add);
}
inline void ExerciseLabelOnly(const Target& target,
                              int (*make)(CUgraphExec*, CUgraph,
                                          unsigned long long)) {
  ExerciseGraphInstantiateWithFlags(target, make);
}
inline void ExerciseLabelOnly(const Target& target,
                              int (*make)(CUgraphExec*, CUgraph,
                                          unsigned long long, char*, size_t)) {
  char* log = nullptr;
  ExerciseAnyInstantiate(target, make, 0ULL, log, size_t{0});
}
inline void ExerciseLabelOnly(const Target& target,
                              int (*make)(CUgraphExec*, CUgraph,
                                          cudaGraphInstantiateParams*)) {
  ExerciseGraphInstantiateWithParams(target, make);
}
inline void ExerciseLabelOnly(const Target& target,
                              int (*destroy)(CUgraphExec)) {
  ExerciseGraphExecDestroy(target, destroy);
}
inline void ExerciseLabelOnly(const Target& target, int (*destroy)(CUgraph)) {
  ExerciseGraphDestroy(target, destroy);
}
inline void ExerciseLabelOnly(const Target& target,
                              int (*launch)(CUgraphExec, CUstream)) {
  ExerciseGraphLaunch(target, launch);
}
inline void ExerciseLabelOnly(const Target& target,
                              int (*begin)(CUstream, int)) {
  ExerciseAnyBegin(target, begin);
}
inline void ExerciseLabelOnly(
    const Target& target, int (*begin)(CUstream, CUgraph, const CUgraphNode*,
                                       const cudaGraphEdgeData*, size_t, int)) {
  ExerciseAnyBegin(target, begin);
}
inline void ExerciseLabelOnly(const Target& target,
                              int (*end)(CUstream, CUgraph*)) {
  ExerciseStreamEndCapture(target, end);
}

}  // namespace dstrace::hooks::testing

#endif  // DSTRACE_TESTS_HOOKS_EXERCISES_GRAPH_H_
