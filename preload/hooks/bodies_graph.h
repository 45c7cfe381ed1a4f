// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_PRELOAD_HOOKS_BODIES_GRAPH_H_
#define DSTRACE_PRELOAD_HOOKS_BODIES_GRAPH_H_

// What to record of CUDA graphs: memory nodes, instances, launches, capture.
// All are kGraph; `api` says which. handle: the graph, or the executable graph
// (with its graph as address). What the nodes hold of the device is asked of
// the driver, see memory_sampler.h.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "preload/hooks/bodies_memory.h"
#include "preload/hooks/call.h"
#include "preload/hooks/driver_queries.h"

namespace dstrace::hooks {

struct GraphBody : Body {
  static constexpr DeviceKind kKind = DeviceKind::kGraph;
};

struct GraphAddMemAllocNode : GraphBody {
  static void Note(DeviceEvent& event, CUgraph graph,
                   const CUDA_MEM_ALLOC_NODE_PARAMS& params) noexcept {
    event.handle = Number(graph);
    event.address = params.dptr;
    event.size = params.bytesize;
    event.device = params.pool_props.location.id;
    // relaxed: a launch of this graph comes later in the program's own order.
    g_graphs_allocate.store(true, std::memory_order_relaxed);
  }
  static void Before(DeviceEvent& event, const CUgraphNode*, CUgraph graph,
                     const CUgraphNode*, size_t,
                     const CUDA_MEM_ALLOC_NODE_PARAMS* params) noexcept {
    event.handle = Number(graph);
    if (params != nullptr) event.size = params->bytesize;
  }
  static void After(DeviceEvent& event, const CUgraphNode*, CUgraph graph,
                    const CUgraphNode*, size_t,
                    const CUDA_MEM_ALLOC_NODE_PARAMS* params) noexcept {
    Note(event, graph, *params);
  }
};

struct GraphAddMemFreeNode : GraphBody {
  template <class P>
  static void Before(DeviceEvent& event, const CUgraphNode*, CUgraph graph,
                     const CUgraphNode*, size_t, P address) noexcept {
    event.handle = Number(graph);
    event.address = Number(address);
  }
};

// The general form; only its memory nodes are of interest.
struct GraphAddNode : GraphBody {
  static void After(DeviceEvent& event, const CUgraphNode*, CUgraph graph,
                    const CUgraphNode*, size_t,
                    const CUgraphNodeParams* params) noexcept {
    event.handle = Number(graph);
    event.flags = static_cast<uint64_t>(params->type);
    if (params->type == kGraphNodeMemAlloc) {
      GraphAddMemAllocNode::Note(event, graph, params->alloc);
    } else if (params->type == kGraphNodeMemFree) {
      event.address = params->free_dptr;
    }
  }
  static bool Skip(const DeviceEvent& event) noexcept {
    return event.flags != kGraphNodeMemAlloc &&
           event.flags != kGraphNodeMemFree;
  }
};
struct GraphAddNodeWithEdges : GraphAddNode {
  static void After(DeviceEvent& event, const CUgraphNode* node, CUgraph graph,
                    const CUgraphNode* dependencies, const CUgraphEdgeData*,
                    size_t count, const CUgraphNodeParams* params) noexcept {
    GraphAddNode::After(event, node, graph, dependencies, count, params);
  }
};

struct GraphInstantiate : GraphBody {
  template <class... Rest>
  static void After(DeviceEvent& event, const CUgraphExec* out, CUgraph graph,
                    const Rest&...) noexcept {
    event.handle = Number(*out);
    event.address = Number(graph);
    event.device = CurrentDevice();
  }
};
struct GraphInstantiateWithLog : GraphInstantiate {};
struct GraphInstantiateWithFlags : GraphInstantiate {};
struct GraphInstantiateWithParams : GraphInstantiate {};

template <class H>
struct GraphEnd : GraphBody {
  static constexpr bool kStampBefore = true;
  static void Before(DeviceEvent& event, H graph) noexcept {
    event.handle = Number(graph);
  }
};
struct GraphExecDestroy : GraphEnd<CUgraphExec> {};
struct GraphDestroy : GraphEnd<CUgraph> {};

// Remembers which executable graphs were launched: the first launch uploads
// and allocates, later ones of graphs without memory nodes change nothing.
class LaunchedGraphs {
 public:
  // True if `graph` is not the last one seen in its place of the table.
  static bool IsNew(uint64_t graph) noexcept {
    std::atomic<uint64_t>& place = seen_[graph / 64 % kPlaces];
    // relaxed: one launch recorded twice or not at all does no harm.
    return place.exchange(graph, std::memory_order_relaxed) != graph;
  }

 private:
  static constexpr size_t kPlaces = 512;
  static inline std::atomic<uint64_t> seen_[kPlaces];
};

struct GraphLaunch : GraphBody {
  static void Before(DeviceEvent& event, CUgraphExec graph,
                     CUstream stream) noexcept {
    event.handle = Number(graph);
    event.stream = Number(stream);
  }
  static bool Skip(const DeviceEvent& event) noexcept {
    // relaxed: see Note().
    return !LaunchedGraphs::IsNew(event.handle) &&
           !g_graphs_allocate.load(std::memory_order_relaxed);
  }
};
struct GraphUpload : GraphLaunch {};

struct DeviceGraphMemTrim : GraphBody {
  static void Before(DeviceEvent& event, CUdevice device) noexcept {
    event.device = device;
  }
};

// While a stream is captured the driver must not be asked for its memory.
struct StreamBeginCapture : GraphBody {
  template <class... Rest>
  static void Before(DeviceEvent& event, CUstream stream,
                     const Rest&...) noexcept {
    event.stream = Number(stream);
  }
  template <class... Rest>
  static void After(DeviceEvent& event, CUstream, const Rest&...) noexcept {
    event.device = CurrentDevice();
    BeginCapture();
  }
};
struct StreamBeginCaptureV1 : StreamBeginCapture {};
struct StreamBeginCaptureToGraph : StreamBeginCapture {};

struct StreamEndCapture : GraphBody {
  static void Before(DeviceEvent& event, CUstream stream,
                     const CUgraph*) noexcept {
    event.stream = Number(stream);
  }
  // A capture that went wrong (900 to 907) has ended too.
  static void Done(int result) noexcept {
    if (result == kCudaSuccess || (result >= 900 && result <= 907)) {
      EndCapture();
    }
  }
  static void After(DeviceEvent& event, CUstream, const CUgraph* out) noexcept {
    if (out != nullptr) event.handle = Number(*out);
  }
};

}  // namespace dstrace::hooks

#endif  // DSTRACE_PRELOAD_HOOKS_BODIES_GRAPH_H_
