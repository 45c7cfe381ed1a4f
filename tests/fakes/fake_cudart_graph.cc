// SPDX-License-Identifier: Apache-2.0
//
// The runtime's graphs, streams and events, and its questions. Events complete
// when FakeCudartCompleteEvents() says so, to let tests hold memory pending.
#include <atomic>

#include "tests/fakes/fake_cudart.h"

#define FAKE_EXPORT __attribute__((visibility("default")))

namespace dstrace::fakes {
namespace {

using D = Driver;

constexpr cudaError_t kNotReady = 600;

std::atomic<uint64_t> g_next_object{0x7000};
std::atomic<bool> g_complete{true};

template <class H>
cudaError_t NewObject(H* out) {
  const cudaError_t result = Ready();
  if (result == 0) *out = reinterpret_cast<H>(g_next_object.fetch_add(64));
  return result;
}

}  // namespace

// ---- graphs ----
cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* dependencies,
                                     size_t count,
                                     cudaMemAllocNodeParams* params) {
  return Do(&D::cuGraphAddMemAllocNode, node, graph, dependencies, count,
            params);
}
cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                    const cudaGraphNode_t* dependencies,
                                    size_t count, void* pointer) {
  return Do(&D::cuGraphAddMemFreeNode, node, graph, dependencies, count,
            reinterpret_cast<CUdeviceptr>(pointer));
}
cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph,
                             const cudaGraphNode_t* dependencies,
                             const cudaGraphEdgeData* data, size_t count,
                             cudaGraphNodeParams* params) {
  return Do(&D::cuGraphAddNode_v2, node, graph, dependencies,
            reinterpret_cast<const CUgraphEdgeData*>(data), count,
            reinterpret_cast<CUgraphNodeParams*>(params));
}
cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t* node, cudaGraph_t graph,
                                const cudaGraphNode_t* dependencies,
                                const cudaGraphEdgeData* data, size_t count,
                                cudaGraphNodeParams* params) {
  return cudaGraphAddNode(node, graph, dependencies, data, count, params);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph,
                                 unsigned long long flags, char*, size_t) {
  return Do(&D::cuGraphInstantiateWithFlags, out, graph, flags);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out,
                                          cudaGraph_t graph,
                                          unsigned long long flags) {
  return Do(&D::cuGraphInstantiateWithFlags, out, graph, flags);
}
cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* out,
                                           cudaGraph_t graph,
                                           cudaGraphInstantiateParams* params) {
  return Do(&D::cuGraphInstantiateWithParams, out, graph,
            reinterpret_cast<CUDA_GRAPH_INSTANTIATE_PARAMS*>(params));
}
cudaError_t cudaGraphInstantiateWithParams_ptsz(
    cudaGraphExec_t* out, cudaGraph_t graph,
    cudaGraphInstantiateParams* params) {
  return Do(&D::cuGraphInstantiateWithParams_ptsz, out, graph,
            reinterpret_cast<CUDA_GRAPH_INSTANTIATE_PARAMS*>(params));
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return Do(&D::cuGraphExecDestroy, graph);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return Do(&D::cuGraphDestroy, graph);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return Do(&D::cuGraphLaunch, graph, stream);
}
cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t graph, cudaStream_t stream) {
  return Do(&D::cuGraphLaunch_ptsz, graph, stream);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream) {
  return Do(&D::cuGraphUpload, graph, stream);
}
cudaError_t cudaGraphUpload_ptsz(cudaGraphExec_t graph, cudaStream_t stream) {
  return Do(&D::cuGraphUpload_ptsz, graph, stream);
}
cudaError_t cudaDeviceGraphMemTrim(int device) {
  return Do(&D::cuDeviceGraphMemTrim, device);
}

// ---- capture ----
cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   cudaStreamCaptureMode mode) {
  return Do(&D::cuStreamBeginCapture_v2, stream, mode);
}
cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream,
                                        cudaStreamCaptureMode mode) {
  return Do(&D::cuStreamBeginCapture_v2_ptsz, stream, mode);
}
cudaError_t cudaStreamBeginCaptureToGraph(
    cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
    const cudaGraphEdgeData* data, size_t count, cudaStreamCaptureMode mode) {
  return Do(&D::cuStreamBeginCaptureToGraph, stream, graph, dependencies,
            reinterpret_cast<const CUgraphEdgeData*>(data), count, mode);
}
cudaError_t cudaStreamBeginCaptureToGraph_ptsz(
    cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
    const cudaGraphEdgeData* data, size_t count, cudaStreamCaptureMode mode) {
  return Do(&D::cuStreamBeginCaptureToGraph_ptsz, stream, graph, dependencies,
            reinterpret_cast<const CUgraphEdgeData*>(data), count, mode);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Do(&D::cuStreamEndCapture, stream, graph);
}
cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t* graph) {
  return Do(&D::cuStreamEndCapture_ptsz, stream, graph);
}

// ---- events ----
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return 0; }
cudaError_t cudaEventRecord_ptsz(cudaEvent_t, cudaStream_t) { return 0; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned int) {
  return 0;
}
cudaError_t cudaEventRecordWithFlags_ptsz(cudaEvent_t, cudaStream_t,
                                          unsigned int) {
  return 0;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  return g_complete.load(std::memory_order_relaxed) ? 0 : kNotReady;
}

// ---- the driver's functions ----
namespace {

cudaError_t EntryPoint(const char* symbol, void** function,
                       unsigned int version, unsigned long long flags,
                       bool per_thread, int* status) {
  if (symbol == nullptr || function == nullptr) return 1;
  const cudaError_t result = Ready();
  if (result != 0) return result;
  if (flags != kProcAddressDefault) {
    per_thread = flags == kProcAddressPerThreadStream;
  }
  *function = FindDriverFunction(symbol, static_cast<int>(version), per_thread);
  if (status != nullptr) *status = *function == nullptr ? 1 : 0;
  return 0;
}

constexpr unsigned int kVersion = 13000;

}  // namespace

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function,
                                    unsigned long long flags, int* status) {
  return EntryPoint(symbol, function, kVersion, flags, false, status);
}
cudaError_t cudaGetDriverEntryPoint_ptsz(const char* symbol, void** function,
                                         unsigned long long flags,
                                         int* status) {
  return EntryPoint(symbol, function, kVersion, flags, true, status);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol,
                                             void** function,
                                             unsigned int version,
                                             unsigned long long flags,
                                             int* status) {
  return EntryPoint(symbol, function, version, flags, false, status);
}
cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char* symbol,
                                                  void** function,
                                                  unsigned int version,
                                                  unsigned long long flags,
                                                  int* status) {
  return EntryPoint(symbol, function, version, flags, true, status);
}

// ---- not hooked ----
extern "C" {

FAKE_EXPORT void FakeCudartCompleteEvents(int complete) {
  g_complete.store(complete != 0, std::memory_order_relaxed);
}

FAKE_EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return 1;
  *version = kVersion;
  return 0;
}
FAKE_EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  return Do(&D::cuDriverGetVersion, version);
}
FAKE_EXPORT cudaError_t cudaGetDeviceCount(int* count) {
  return Do(&D::cuDeviceGetCount, count);
}
FAKE_EXPORT cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return 1;
  *device = ThreadDevice();
  return 0;
}
FAKE_EXPORT cudaError_t cudaGetLastError() { return 0; }
FAKE_EXPORT const char* cudaGetErrorString(cudaError_t error) {
  return error == 0 ? "no error" : error == 2 ? "out of memory" : "error";
}
FAKE_EXPORT cudaError_t cudaDeviceSynchronize() { return Ready(); }
FAKE_EXPORT cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  return Do(&D::cuMemGetInfo_v2, free_bytes, total);
}
FAKE_EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return NewObject(stream);
}
FAKE_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t) { return 0; }
FAKE_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t) { return 0; }
FAKE_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event,
                                                 unsigned int) {
  return NewObject(event);
}
FAKE_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t) { return 0; }
FAKE_EXPORT cudaError_t cudaGraphCreate(cudaGraph_t* graph,
                                        unsigned int flags) {
  return Do(&D::cuGraphCreate, graph, flags);
}
FAKE_EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle,
                                            void* address) {
  return Do(&D::cuIpcGetMemHandle, handle,
            reinterpret_cast<CUdeviceptr>(address));
}

}  // extern "C"

}  // namespace dstrace::fakes
