# SPDX-License-Identifier: Apache-2.0
"""CUDA's runtime by ctypes, and the truth about the stack of each allocation.

allocate() notes the Python stack as the interpreter itself tells it, under the
size it asks for (each size is used once). finish() prints them for the test to
compare with the log.
"""
import ctypes
import json
import sys
import threading

_runtime = ctypes.CDLL("libcudart.so.13")
_lock = threading.Lock()
_next_size = 512
expected = {}


def frames_from(frame):
    """[[name, line, file, first line], ...], innermost first."""
    stack = []
    while frame is not None:
        code = frame.f_code
        stack.append([getattr(code, "co_qualname", code.co_name), frame.f_lineno,
                      code.co_filename, code.co_firstlineno])
        frame = frame.f_back
    return stack


def allocate():
    global _next_size
    with _lock:
        size = _next_size
        _next_size += 512
    pointer = ctypes.c_void_p()
    # Everything but this function's own line, which moves on to the call.
    expected[size] = frames_from(sys._getframe(1))
    status = _runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
    assert status == 0 and pointer.value
    return pointer


def free(pointer):
    assert _runtime.cudaFree(pointer) == 0


def finish():
    print(json.dumps({str(size): stack for size, stack in expected.items()}))
