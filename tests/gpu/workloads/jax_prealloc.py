# SPDX-License-Identifier: Apache-2.0
"""JAX: whatever XLA_PYTHON_CLIENT_* in the environment asks for (preallocation, growth, plain allocator)."""

import os

import jax
import jax.numpy as jnp

from common import checkpoint, driver_used


def state(step):
    stats = jax.devices()[0].memory_stats() or {}
    checkpoint(step, driver_used=driver_used(), jax={k: v for k, v in stats.items() if isinstance(v, int)},
               settings={k: v for k, v in os.environ.items() if k.startswith("XLA_")})


def main():
    x = jnp.ones((1024, 1024), dtype=jnp.float32).block_until_ready()
    state("first_array")
    big = [jnp.full((n * 262144,), 1.0, dtype=jnp.float32).block_until_ready() for n in (64, 256)]
    state("arrays_64_256_MiB")
    jax.jit(lambda a: jnp.tanh(a @ a).sum())(x).block_until_ready()
    state("jit_matmul")
    del big
    state("deleted")


main()
