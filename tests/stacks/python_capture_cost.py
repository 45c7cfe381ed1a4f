# SPDX-License-Identifier: Apache-2.0
"""Prints what one capture costs inside Python, at a few depths.

usage: DSTRACE_STACKS_PROBE=LIBRARY python_capture_cost.py
"""
import ctypes
import os
import sys
import time

library = ctypes.PyDLL(os.environ["DSTRACE_STACKS_PROBE"])
library.probe_warm_up()
COUNT = 200000


def cost(depth, mode):
    if depth > 0:
        return cost(depth - 1, mode)
    library.probe_repeat(100, mode)
    best = float("inf")
    for _ in range(5):
        start = time.thread_time()
        library.probe_repeat(COUNT, mode)
        best = min(best, time.thread_time() - start)
    return best / COUNT * 1e9


print(sys.version.split()[0])
for depth in (3, 13, 30):
    for name, mode in (("python", 0), ("python+native", 1)):
        nanoseconds = cost(max(0, depth - 2), mode)
        print("  depth %2d  %-13s %7.1f ns" % (depth, name, nanoseconds))
