# SPDX-License-Identifier: Apache-2.0
"""A Triton kernel: compiler children, module load, launch (--compile: torch.compile too)."""

import sys

import torch
import triton
import triton.language as tl

from common import checkpoint


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside), mask=inside)


def main():
    n = 1 << 24
    x, y, out = (torch.randn(n, device="cuda") for _ in range(3))
    checkpoint("tensors")
    for block in (256, 1024):
        add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
        torch.cuda.synchronize()
        checkpoint("kernel_block_%d" % block)
    assert torch.equal(out, x + y)
    if "--compile" in sys.argv:
        compiled = torch.compile(lambda a, b: (a * b).relu().sum())
        compiled(x, y)
        torch.cuda.synchronize()
        checkpoint("torch_compile")


main()
