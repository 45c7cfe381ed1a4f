# SPDX-License-Identifier: Apache-2.0
"""Phases in the program's own words: torch.cuda.nvtx, dstrace's Python module, and nested ranges.

The last line is MARKS [[kind, name], ...]: what the trace must hold, in this order.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "python"))

import torch

import dstrace
from common import checkpoint, emit
from model import Decoder

EXPECTED = []


def said(kind, name):
    EXPECTED.append([kind, name])


def nvtx_push(name):
    said("push", name)
    torch.cuda.nvtx.range_push(name)


def nvtx_pop():
    said("pop", "")
    torch.cuda.nvtx.range_pop()


def main():
    torch.manual_seed(0)
    torch.cuda.nvtx.mark("before CUDA")  # not in the trace: there is none yet
    nvtx_push("load")  # open at the first CUDA call
    model = Decoder(8192, 512, 2, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(8192, (2, 128), device="cuda")
    nvtx_pop()
    checkpoint("loaded")
    for index in range(2):
        said("push", "step")
        with dstrace.range("step"):
            nvtx_push("forward")
            loss = model(tokens)
            nvtx_pop()
            nvtx_push("backward")
            loss.backward()
            nvtx_pop()
            said("point", "optimizer %d" % index)
            dstrace.mark("optimizer %d" % index)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        said("pop", "")
    torch.cuda.synchronize()
    said("point", "done")
    torch.cuda.nvtx.mark("done")
    checkpoint("done")
    emit("MARKS", EXPECTED)


main()
