# SPDX-License-Identifier: Apache-2.0
"""Stream-ordered allocations captured into a CUDA graph (memory nodes), through the runtime API alone."""

import ctypes

import torch

from common import checkpoint, note, runtime

MIB = 1 << 20


def must(result, what):
    if result != 0:
        raise RuntimeError("%s: CUDA error %d" % (what, result))


def main():
    torch.ones(1, device="cuda")
    rt = runtime()
    checkpoint("context")
    stream, graph, executable = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    must(rt.cudaStreamCreate(ctypes.byref(stream)), "cudaStreamCreate")
    must(rt.cudaStreamBeginCapture(stream, 2), "cudaStreamBeginCapture")
    pointer = ctypes.c_void_p()
    must(rt.cudaMallocAsync(ctypes.byref(pointer), ctypes.c_size_t(64 * MIB), stream), "cudaMallocAsync")
    must(rt.cudaMemsetAsync(pointer, 0, ctypes.c_size_t(64 * MIB), stream), "cudaMemsetAsync")
    must(rt.cudaFreeAsync(pointer, stream), "cudaFreeAsync")
    must(rt.cudaStreamEndCapture(stream, ctypes.byref(graph)), "cudaStreamEndCapture")
    checkpoint("captured")
    must(rt.cudaGraphInstantiate(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)), "cudaGraphInstantiate")
    checkpoint("instantiated")
    for _ in range(3):
        must(rt.cudaGraphLaunch(executable, stream), "cudaGraphLaunch")
    must(rt.cudaStreamSynchronize(stream), "cudaStreamSynchronize")
    value = ctypes.c_uint64()
    for name, attribute in (("used", 0), ("reserved", 2)):
        rt.cudaDeviceGetGraphMemAttribute(0, attribute, ctypes.byref(value))
        note(**{"graph_memory_" + name: value.value})
    checkpoint("launched")
    must(rt.cudaGraphExecDestroy(executable), "cudaGraphExecDestroy")
    must(rt.cudaGraphDestroy(graph), "cudaGraphDestroy")
    must(rt.cudaDeviceGraphMemTrim(0), "cudaDeviceGraphMemTrim")
    checkpoint("trimmed")


main()
