# SPDX-License-Identifier: Apache-2.0
"""Pinned host memory: torch's pinned allocator, registered memory, and a DataLoader with workers and pin_memory."""

import torch
from torch.utils.data import DataLoader, Dataset

from common import checkpoint

MIB = 1 << 20


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((MIB // 4,), float(index))


def host_state():
    """Torch's own account of its pinned memory, where this release keeps one."""
    read = getattr(torch.cuda, "host_memory_stats", None)
    return {k: v for k, v in read().items() if k.endswith(".current")} if read else {}


def main():
    torch.ones(1, device="cuda")
    checkpoint("context", host=host_state())
    blocks = [torch.empty(n * MIB, dtype=torch.uint8, pin_memory=True) for n in (1, 3, 64)]
    checkpoint("pinned_1_3_64_MiB", host=host_state())
    on_device = [b.to("cuda", non_blocking=True) for b in blocks]
    torch.cuda.synchronize()
    checkpoint("copied", host=host_state())
    del blocks, on_device

    plain = torch.zeros(16 * MIB, dtype=torch.uint8)
    assert int(torch.cuda.cudart().cudaHostRegister(plain.data_ptr(), plain.numel(), 0)) == 0
    checkpoint("registered_16_MiB")
    assert int(torch.cuda.cudart().cudaHostUnregister(plain.data_ptr())) == 0

    total = 0.0
    for batch in DataLoader(Rows(), batch_size=8, num_workers=2, pin_memory=True):
        assert batch.is_pinned()
        total += batch.cuda(non_blocking=True).mean().item()
    checkpoint("loaded", total=total, host=host_state())


if __name__ == "__main__":
    main()
