# SPDX-License-Identifier: Apache-2.0
"""NCCL with one, two and three communicators: what each takes on the device (under torchrun: one rank a GPU)."""

import ctypes

import torch
import torch.distributed as dist

from common import checkpoint, init_nccl


def nccl_account(group):
    """NCCL's own figures for a communicator, where this NCCL has ncclCommMemStats; by statistic number."""
    try:
        backend = group._get_backend(torch.device("cuda"))
        communicator = ctypes.c_void_p(backend._comm_ptr())
        stats = ctypes.CDLL("libnccl.so.2").ncclCommMemStats
    except (AttributeError, OSError, RuntimeError):
        return None
    figures = {}
    for number in range(6):
        value = ctypes.c_uint64()
        if stats(communicator, number, ctypes.byref(value)) == 0:
            figures[str(number)] = value.value
    return figures


def main():
    _, world = init_nccl()
    x = torch.ones(8 << 20, device="cuda")
    checkpoint("tensor")
    groups = []
    for i in range(3):
        group = dist.group.WORLD if i == 0 else dist.new_group(list(range(world)))
        dist.all_reduce(x, group=group)
        torch.cuda.synchronize()
        groups.append(group)
        checkpoint("communicator_%d" % (i + 1), nccl=nccl_account(group), world=world)
    outs = torch.empty(world * x.numel(), device="cuda")
    dist.all_gather_into_tensor(outs, x)
    dist.reduce_scatter_tensor(x, outs)
    dist.broadcast(x, 0)
    torch.cuda.synchronize()
    checkpoint("other_collectives", nccl=nccl_account(groups[0]))
    for i in (2, 1):
        dist.destroy_process_group(groups[i])
        checkpoint("communicator_%d_destroyed" % (i + 1))
    dist.destroy_process_group()
    checkpoint("all_destroyed")


main()
