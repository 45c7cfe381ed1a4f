// SPDX-License-Identifier: Apache-2.0
//
// Graphs and stream capture. An executable graph holds the bytes of its
// graph's allocation nodes from its first launch until it is destroyed.
#include "tests/fakes/fake_driver.h"

namespace dstrace::fakes {
namespace {

// Bytes of each graph's allocation nodes. Under State's lock.
std::unordered_map<uint64_t, uint64_t>& NodeBytes() {
  static auto& bytes = *new std::unordered_map<uint64_t, uint64_t>;
  return bytes;
}

template <class H>
uint64_t Handle(H* handle) {
  return reinterpret_cast<uint64_t>(handle);
}

template <class H>
CUresult Create(H* out) {
  return CreateObject(0, reinterpret_cast<uint64_t*>(out));
}

CUresult AddAlloc(CUgraph graph, CUDA_MEM_ALLOC_NODE_PARAMS& params) {
  if (params.bytesize == 0) return kInvalidValue;
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  const uint64_t rounded = RoundUp(params.bytesize);
  params.dptr = state.NewAddress(params.pool_props.location.id, rounded);
  NodeBytes()[Handle(graph)] += rounded;
  return kOk;
}

CUresult AddNode(CUgraphNode* node, CUgraph graph, CUgraphNodeParams* params) {
  if (node == nullptr || graph == nullptr || params == nullptr) {
    return kInvalidValue;
  }
  *node = reinterpret_cast<CUgraphNode>(Handle(graph) + 8);
  return params->type == kGraphNodeMemAlloc ? AddAlloc(graph, params->alloc)
                                            : kOk;
}

CUresult Instantiate(CUgraphExec* out, CUgraph graph) {
  if (graph == nullptr) return kInvalidValue;
  const CUresult result = Create(out);
  if (result != kOk) return result;
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  NodeBytes()[Handle(*out)] = NodeBytes()[Handle(graph)];
  return kOk;
}

bool Captured(State& state, CUstream stream) {
  return stream != nullptr && state.capturing.count(Handle(stream)) != 0;
}

CUresult Begin(CUstream stream) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (stream == nullptr) return 901;
  if (!state.capturing.emplace(Handle(stream), true).second) {
    return kIllegalState;
  }
  return kOk;
}

}  // namespace

bool AllocateCaptured(CUstream stream, uint64_t bytes, CUdeviceptr* address) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (!Captured(state, stream) || address == nullptr || bytes == 0) {
    return false;
  }
  int device = 0;
  if (CurrentDevice(state, &device) != kOk) return false;
  *address = state.NewAddress(device, RoundUp(bytes));
  state.captured_bytes[Handle(stream)] += RoundUp(bytes);
  state.captured_addresses[*address] = Handle(stream);
  return true;
}
bool ReleaseCaptured(CUstream stream, CUdeviceptr address) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  return Captured(state, stream) && state.captured_addresses.erase(address) > 0;
}

CUresult cuGraphCreate(CUgraph* graph, unsigned int) { return Create(graph); }
CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph,
                                const CUgraphNode*, size_t,
                                CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  if (node == nullptr || graph == nullptr || params == nullptr) {
    return kInvalidValue;
  }
  *node = reinterpret_cast<CUgraphNode>(Handle(graph) + 8);
  return AddAlloc(graph, *params);
}
CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph,
                               const CUgraphNode*, size_t, CUdeviceptr dptr) {
  if (node == nullptr || graph == nullptr || dptr == 0) return kInvalidValue;
  *node = reinterpret_cast<CUgraphNode>(Handle(graph) + 16);
  return kOk;
}
CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*,
                        size_t, CUgraphNodeParams* params) {
  return AddNode(node, graph, params);
}
CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode*,
                           const CUgraphEdgeData*, size_t,
                           CUgraphNodeParams* params) {
  return AddNode(node, graph, params);
}
CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode*,
                            char*, size_t) {
  return Instantiate(out, graph);
}
CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode*,
                               char*, size_t) {
  return Instantiate(out, graph);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph,
                                     unsigned long long) {
  return Instantiate(out, graph);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return params == nullptr ? kInvalidValue : Instantiate(out, graph);
}
CUresult cuGraphInstantiateWithParams_ptsz(
    CUgraphExec* out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return cuGraphInstantiateWithParams(out, graph, params);
}
CUresult cuGraphUpload(CUgraphExec graph, CUstream) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  const auto found = state.objects.find(Handle(graph));
  if (found == state.objects.end()) return kInvalidValue;
  Object& exec = found->second;
  const uint64_t bytes = NodeBytes()[Handle(graph)];
  if (exec.size != 0 || bytes == 0) return kOk;
  if (!state.Take(exec.device, bytes)) return kOutOfMemory;
  exec.size = bytes;
  return kOk;
}
CUresult cuGraphUpload_ptsz(CUgraphExec graph, CUstream stream) {
  return cuGraphUpload(graph, stream);
}
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  return cuGraphUpload(graph, stream);
}
CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream) {
  return cuGraphUpload(graph, stream);
}
CUresult cuGraphExecDestroy(CUgraphExec graph) {
  return DestroyObject(Handle(graph));
}
CUresult cuGraphDestroy(CUgraph graph) { return DestroyObject(Handle(graph)); }
CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return device < 0 || device >= State::Get().device_count ? kInvalidDevice
                                                           : kOk;
}
// Launched graphs keep the bytes of their nodes.
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute,
                                      void* value) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (device < 0 || device >= state.device_count) return kInvalidDevice;
  if (value == nullptr || attribute != kGraphMemReservedCurrent) {
    return kInvalidValue;
  }
  uint64_t reserved = 0;
  for (const auto& [graph, bytes] : NodeBytes()) {
    const auto found = state.objects.find(graph);
    if (bytes > 0 && found != state.objects.end() &&
        found->second.device == device) {
      reserved += found->second.size;
    }
  }
  *static_cast<uint64_t*>(value) = reserved;
  return kOk;
}

// ---- capture ----
CUresult cuStreamBeginCapture(CUstream stream) { return Begin(stream); }
CUresult cuStreamBeginCapture_ptsz(CUstream stream) { return Begin(stream); }
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  return Begin(stream);
}
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode) {
  return Begin(stream);
}
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph,
                                     const CUgraphNode*, const CUgraphEdgeData*,
                                     size_t, CUstreamCaptureMode) {
  return Begin(stream);
}
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph,
                                          const CUgraphNode*,
                                          const CUgraphEdgeData*, size_t,
                                          CUstreamCaptureMode) {
  return Begin(stream);
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  bool valid = false;
  uint64_t bytes = 0;
  {
    State& state = State::Get();
    const std::lock_guard lock(state.mutex);
    const auto found = state.capturing.find(Handle(stream));
    if (found == state.capturing.end()) return kIllegalState;
    valid = found->second;
    state.capturing.erase(found);
    bytes = state.captured_bytes[Handle(stream)];
    state.captured_bytes.erase(Handle(stream));
  }
  if (!valid) return 901;
  const CUresult result = Create(graph);
  if (result != kOk) return result;
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  NodeBytes()[Handle(*graph)] = bytes;
  return kOk;
}
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return cuStreamEndCapture(stream, graph);
}
CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  State& state = State::Get();
  const std::lock_guard lock(state.mutex);
  if (status == nullptr) return kInvalidValue;
  *status = state.capturing.count(Handle(stream)) != 0 ? 1 : 0;
  return kOk;
}

}  // namespace dstrace::fakes
