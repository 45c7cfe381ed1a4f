# SPDX-License-Identifier: Apache-2.0
"""One rank of a job: allocates as many blocks as its rank and two more; with `gloo` as its first argument it also
exchanges a tensor with the other ranks."""
import os
import sys

from cuda import allocate

rank = int(os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")))
for _ in range(rank + 2):
    allocate()

if sys.argv[1:2] == ["gloo"]:
    import torch
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    total = torch.tensor([rank + 1])
    torch.distributed.all_reduce(total)
    assert int(total) == 3, total
    torch.distributed.destroy_process_group()
