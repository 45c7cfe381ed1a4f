# SPDX-License-Identifier: Apache-2.0
"""Counts what torch.profiler sees, so that a run under the tracer can be compared with a bare one.

The last line is PROFILE {"kernel": ..., "memory": ..., ...}: events by category, kernels by name, memory bytes.
"""

import collections
import json
import os
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile

from common import checkpoint, emit
from model import Decoder


def main():
    torch.manual_seed(0)
    model = Decoder(8192, 512, 4, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(8192, (4, 256), device="cuda")

    def step():
        model(tokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    checkpoint("warm")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as recorded:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    checkpoint("profiled")
    path = os.path.join(tempfile.mkdtemp(), "profile.json")
    recorded.export_chrome_trace(path)
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    size = os.path.getsize(path)
    os.unlink(path)
    categories = collections.Counter(e.get("cat", "none") for e in events)
    kernels = collections.Counter(e["name"] for e in events if e.get("cat") == "kernel")
    memory = [e for e in events if e.get("name") == "[memory]"]
    emit("PROFILE", {
        "kernel": categories["kernel"], "memcpy": categories["gpu_memcpy"], "memset": categories["gpu_memset"],
        "runtime": categories["cuda_runtime"], "driver": categories["cuda_driver"], "cpu_op": categories["cpu_op"],
        "memory": len(memory), "memory_bytes": sum(abs(e["args"]["Bytes"]) for e in memory),
        "kernel_names": len(kernels), "kernels": dict(kernels.most_common(10)), "trace_bytes": size,
    })
    checkpoint("exported")


main()
