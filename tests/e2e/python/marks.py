# SPDX-License-Identifier: Apache-2.0
"""Marks by the Python module; with an argument, around CUDA calls."""
import sys

import dstrace

if len(sys.argv) > 1:
    import cuda


@dstrace.range("step")
def step():
    """Documented."""
    if len(sys.argv) > 1:
        cuda.free(cuda.allocate())
    return 7


with dstrace.range("load"):
    assert step() == 7
    dstrace.mark("half")
assert step.__doc__ == "Documented."
dstrace.push("odd \u00fc\0cut")
dstrace.pop()
try:
    with dstrace.range("fails"):
        raise KeyError
except KeyError:
    pass
dstrace.pop()  # one too many
print("traced" if dstrace.is_traced() else "alone")
