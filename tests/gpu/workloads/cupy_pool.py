# SPDX-License-Identifier: Apache-2.0
"""CuPy: its own pool over cudaMalloc, the asynchronous pool, pinned pool, and no PyTorch in the process."""

import cupy

from common import checkpoint, driver_used

MIB = 1 << 20


def state(step, pool=None):
    extra = {"driver_used": driver_used()}
    if pool is not None:
        extra.update(pool_used=pool.used_bytes(), pool_total=pool.total_bytes())
    checkpoint(step, **extra)


def main():
    pool = cupy.get_default_memory_pool()
    a = cupy.zeros(1, dtype=cupy.float32)
    state("first_array", pool)
    arrays = [cupy.ones(n * MIB // 4, dtype=cupy.float32) for n in (1, 7, 64, 200)]
    cupy.cuda.Device().synchronize()
    state("arrays", pool)
    product = cupy.random.rand(1024, 1024, dtype=cupy.float32)
    product = product @ product
    cupy.cuda.Device().synchronize()
    state("matmul", pool)
    del arrays, product
    state("freed_to_pool", pool)
    pool.free_all_blocks()
    state("pool_emptied", pool)
    pinned = cupy.cuda.alloc_pinned_memory(8 * MIB)
    state("pinned", pool)
    del pinned

    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    arrays = [cupy.ones(n * MIB // 4, dtype=cupy.float32) for n in (1, 7, 64)]
    cupy.cuda.Device().synchronize()
    state("async_pool_arrays")
    del arrays, a
    cupy.cuda.Device().synchronize()
    state("async_pool_freed")


main()
