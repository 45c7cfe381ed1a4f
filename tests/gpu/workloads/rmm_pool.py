# SPDX-License-Identifier: Apache-2.0
"""RMM: its resources over a statically linked CUDA runtime, alone and as PyTorch's allocator."""

import rmm
import torch

from common import checkpoint, driver_used, note

MIB = 1 << 20


def state(step, statistics=None):
    extra = {"driver_used": driver_used()}
    if statistics is not None:
        counts = statistics.allocation_counts
        extra.update(pool_used=counts.current_bytes, pool_peak=counts.peak_bytes, allocations=counts.total_count)
    checkpoint(step, devices=[], **extra)


def buffers(name, resource):
    """The same buffers of a resource: what the program has, and what the driver gives for them."""
    statistics = rmm.mr.StatisticsResourceAdaptor(resource)
    rmm.mr.set_current_device_resource(statistics)
    kept = [rmm.DeviceBuffer(size=n * MIB) for n in (1, 7, 64)]
    state(name + "_buffers", statistics)
    del kept
    state(name + "_freed", statistics)
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())


def main():
    note(rmm=rmm.__version__)
    rmm.DeviceBuffer(size=1)
    state("context")
    buffers("cuda", rmm.mr.CudaMemoryResource())
    buffers("pool", rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=256 * MIB))
    buffers("managed", rmm.mr.ManagedMemoryResource())
    buffers("async", rmm.mr.CudaAsyncMemoryResource(initial_pool_size=64 * MIB))

    from rmm.allocators.torch import rmm_torch_allocator

    pool = rmm.mr.StatisticsResourceAdaptor(
        rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=128 * MIB))
    rmm.mr.set_current_device_resource(pool)
    torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
    net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
    state("torch_model", pool)
    for _ in range(3):
        net(torch.randn(256, 1024, device="cuda")).square().mean().backward()
        net.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    state("torch_trained", pool)


main()
