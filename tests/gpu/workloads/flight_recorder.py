# SPDX-License-Identifier: Apache-2.0
"""Training in several threads in a file with a limit, until its places have been written again several times; killed.

What one thread allocates, autograd's frees. What torch holds is compared at the end, when nothing of the start is in the
file any more.
"""

import os
import signal
import threading

import torch
from torch import nn

from common import checkpoint

TRAINERS = 3
STEPS = 1000


def trainer(steps, keep):
    net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(24)]).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for step in range(steps):
        loss = net(torch.randn(32, 64, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 100 == 0:
            keep.append(torch.empty(1000 + step, device="cuda"))  # of all times, some live on
    keep.append((net, optimizer))


def main():
    keep = []
    threads = [threading.Thread(target=trainer, args=(STEPS, keep)) for _ in range(TRAINERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    checkpoint("trained")
    trainer(20, keep)
    del keep[:5]
    checkpoint("before_the_end")
    os.kill(os.getpid(), signal.SIGKILL)


main()
