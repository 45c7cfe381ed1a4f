# SPDX-License-Identifier: Apache-2.0
"""usage: deep.py DEPTH: one allocation, DEPTH calls of recurse() deep."""
import ctypes
import sys

_runtime = ctypes.CDLL("libcudart.so.13")


def recurse(depth):
    if depth > 1:
        return recurse(depth - 1)
    pointer = ctypes.c_void_p()
    return _runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(12345 * 512))


sys.setrecursionlimit(100000)
assert recurse(int(sys.argv[1])) == 0
