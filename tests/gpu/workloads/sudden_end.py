# SPDX-License-Identifier: Apache-2.0
"""Training that ends in the middle of a backward pass: SIGKILL, abort, SIGSEGV or os._exit."""

import argparse
import os
import signal

import torch
from torch import nn

from common import checkpoint

ENDS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "abort": os.abort,
    "segv": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": lambda: os._exit(7),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", choices=sorted(ENDS), default="kill")
    args = parser.parse_args()
    net = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(8)]).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for step in range(6):
        loss = net(torch.randn(512, 1024, device="cuda")).square().mean()
        if step == 5:
            checkpoint("before_the_end")
            net[3].weight.register_hook(lambda grad: ENDS[args.how]())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        checkpoint("step_%d" % step)
    raise AssertionError("still alive")


main()
