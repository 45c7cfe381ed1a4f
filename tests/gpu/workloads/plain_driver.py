# SPDX-License-Identifier: Apache-2.0
"""A few calls of the driver and nothing else: small enough to run beside a tool that slows the GPU down."""

import ctypes

from common import checkpoint, driver, driver_used, note

MIB = 1 << 20


def must(result, what):
    if result != 0:
        raise RuntimeError("%s: CUDA error %d" % (what, result))


def others():
    """Libraries of other tools in this process."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")}
    words = ("sanitizer", "Injection", "nsys", "TreeLauncher", "dstrace")
    return sorted(p.rsplit("/", 1)[1] for p in paths if any(word in p for word in words))


def main():
    cuda = driver()
    must(cuda.cuInit(0), "cuInit")
    context = ctypes.c_void_p()
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    must(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    note(libraries=others())
    checkpoint("context", driver_used=driver_used())
    pointers = []
    for size in (1, 16, 100):
        pointer = ctypes.c_uint64()
        must(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size * MIB)), "cuMemAlloc_v2")
        pointers.append(pointer)
    checkpoint("allocated", driver_used=driver_used())
    for pointer in pointers:
        must(cuda.cuMemFree_v2(pointer), "cuMemFree_v2")
    checkpoint("freed", driver_used=driver_used())


main()
