# SPDX-License-Identifier: Apache-2.0
"""What every workload shares: CHECKPOINT lines and a small BLOOM-like model.

A CHECKPOINT line is one JSON object on stdout after the word CHECKPOINT. It says what PyTorch and the driver hold at
one instant, so that the same instant of the trace can be compared with it to the byte. `mono_ns` is CLOCK_MONOTONIC, the
trace's own clock; no tensor is allocated or freed between `mono_before_ns` and `mono_ns`.
"""

import ctypes
import json
import os
import sys
import time

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
    "num_segments": "segment.all.current",
    "num_device_alloc": "num_device_alloc",
    "num_device_free": "num_device_free",
    "num_ooms": "num_ooms",
    "num_alloc_retries": "num_alloc_retries",
}


def rank():
    return int(os.environ.get("RANK", "0"))


def emit(word, fields):
    """One machine-readable line; written in one piece, since ranks share stdout."""
    line = "%s %s\n" % (word, json.dumps(fields, sort_keys=True))
    sys.stdout.flush()
    os.write(1, line.encode())


def note(**fields):
    emit("NOTE", dict(fields, rank=rank(), pid=os.getpid()))


def _rss_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def torch_device_state(device):
    import torch

    stats = torch.cuda.memory_stats(device)
    state = {name: stats.get(key, 0) for name, key in _STATS.items()}
    free, total = torch.cuda.mem_get_info(device)
    state.update(device=device, used=total - free, total=total)
    return state


def checkpoint(step, devices=None, **extra):
    """Prints the state now. `devices`: those this process uses; default the current one, none before CUDA is up."""
    fields = {"step": step, "rank": rank(), "pid": os.getpid()}
    torch = sys.modules.get("torch")
    fields["mono_before_ns"] = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    if torch is not None and torch.cuda.is_initialized():
        if devices is None:
            devices = [torch.cuda.current_device()]
        fields["devices"] = [torch_device_state(d) for d in devices]
    fields["mono_ns"] = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    fields["real_ns"] = time.time_ns()
    fields["rss"] = _rss_bytes()
    fields.update(extra)
    emit("CHECKPOINT", fields)
    return fields


def driver():
    """libcuda, for programs without PyTorch."""
    return ctypes.CDLL("libcuda.so.1")


def driver_used(device=0):
    """Bytes in use on the device by the driver's account, through the primary context."""
    cuda = driver()
    context = ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.cuInit(0)
    if cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) != 0:
        return None
    cuda.cuCtxPushCurrent_v2(context)
    result = cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    cuda.cuDevicePrimaryCtxRelease_v2(device)
    return total.value - free.value if result == 0 else None


def runtime():
    """The libcudart that PyTorch loaded, or the first one that can be found."""
    import torch  # noqa: F401  (loads it)

    for name in ("libcudart.so.13", "libcudart.so.12", "libcudart.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "libcudart" in line:
                return ctypes.CDLL(line.split(maxsplit=5)[5].strip())
    raise RuntimeError("no libcudart found")


def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def init_nccl():
    """Process group over NCCL: from torchrun's variables, or of one rank without them. Returns (rank, world)."""
    import torch
    import torch.distributed as dist

    if "RANK" not in os.environ:
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1",
                          MASTER_PORT=str(free_port()))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    return dist.get_rank(), dist.get_world_size()
