# SPDX-License-Identifier: Apache-2.0
"""Managed memory, a few MiB of it, and the runtime API's other ways to allocate."""

import ctypes

import torch

from common import checkpoint, runtime

MIB = 1 << 20
SIZE = ctypes.c_size_t


def must(result, what):
    if result != 0:
        raise RuntimeError("%s: CUDA error %d" % (what, result))


def managed(rt):
    pointers = []
    for size in (1 * MIB, 16 * MIB, 48 * MIB):
        p = ctypes.c_void_p()
        must(rt.cudaMallocManaged(ctypes.byref(p), SIZE(size), 1), "cudaMallocManaged")
        pointers.append(p)
    checkpoint("managed_65_MiB_untouched")
    for p, size in zip(pointers, (1 * MIB, 16 * MIB, 48 * MIB)):
        must(rt.cudaMemset(p, 0, SIZE(size)), "cudaMemset")
    must(rt.cudaDeviceSynchronize(), "cudaDeviceSynchronize")
    checkpoint("managed_65_MiB_on_device")
    ctypes.memset(pointers[2], 1, 48 * MIB)
    checkpoint("managed_48_MiB_back_on_host")
    for p in pointers:
        must(rt.cudaFree(p), "cudaFree")
    checkpoint("managed_freed")


def pitched_and_pools(rt):
    p, q, pitch = ctypes.c_void_p(), ctypes.c_void_p(), SIZE()
    must(rt.cudaMallocPitch(ctypes.byref(p), ctypes.byref(pitch), SIZE(1000), SIZE(4096)), "cudaMallocPitch")
    checkpoint("pitch", pitch=pitch.value)
    must(rt.cudaFree(p), "cudaFree")
    must(rt.cudaMallocAsync(ctypes.byref(q), SIZE(32 * MIB), None), "cudaMallocAsync")
    checkpoint("async_32_MiB")
    must(rt.cudaFreeAsync(q, None), "cudaFreeAsync")
    must(rt.cudaDeviceSynchronize(), "cudaDeviceSynchronize")
    checkpoint("async_freed_pool_keeps_or_returns")
    host = ctypes.c_void_p()
    must(rt.cudaHostAlloc(ctypes.byref(host), SIZE(8 * MIB), 0), "cudaHostAlloc")
    checkpoint("host_8_MiB")
    must(rt.cudaFreeHost(host), "cudaFreeHost")


def main():
    torch.ones(1, device="cuda")
    rt = runtime()
    checkpoint("context")
    managed(rt)
    pitched_and_pools(rt)
    checkpoint("end")


main()
