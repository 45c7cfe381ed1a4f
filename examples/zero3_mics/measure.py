# SPDX-License-Identifier: Apache-2.0
"""Prints what PyTorch and the driver hold: a line to read (rank 0) and a CHECKPOINT line to compare a trace with."""

import json
import os
import time

import torch

_STATS = {
    "allocated": "allocated_bytes.all.current",
    "reserved": "reserved_bytes.all.current",
    "active": "active_bytes.all.current",  # allocated + freed but still in use by a recorded stream
    "requested": "requested_bytes.all.current",
    "inactive_split": "inactive_split_bytes.all.current",
    "peak_allocated": "allocated_bytes.all.peak",
    "peak_reserved": "reserved_bytes.all.peak",
    "num_alloc": "allocation.all.allocated",
    "num_free": "allocation.all.freed",
    "num_device_alloc": "num_device_alloc",
    "num_device_free": "num_device_free",
    "num_ooms": "num_ooms",
}


def emit(word, **fields):
    fields.update(rank=int(os.environ.get("RANK", "0")), pid=os.getpid())
    os.write(1, ("%s %s\n" % (word, json.dumps(fields, sort_keys=True))).encode())


def checkpoint(step, **extra):
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    device = torch.cuda.current_device()
    stats = torch.cuda.memory_stats(device)
    state = {name: stats.get(key, 0) for name, key in _STATS.items()}
    free, total = torch.cuda.mem_get_info(device)
    state.update(device=device, used=total - free, total=total)
    emit("CHECKPOINT", step=step, mono_before_ns=before, mono_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC),
         real_ns=time.time_ns(), devices=[state], **extra)
    if os.environ.get("RANK", "0") == "0":
        mib = {k: v / 2**20 for k, v in state.items()}
        text = "%-26s MiB: device used %7.0f  torch reserved %7.0f  live %7.0f  stream-pending %7.0f  peak live %7.0f\n"
        os.write(1, (text % (step, mib["used"], mib["reserved"], mib["allocated"], mib["active"] - mib["allocated"],
                             mib["peak_allocated"])).encode())
    return state
