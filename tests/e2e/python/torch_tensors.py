# SPDX-License-Identifier: Apache-2.0
"""Tensors of sizes that nothing else has, on the CPU, some of them freed.

Prints {"made": {bytes: [[name, line], ...]}, "kept": [bytes, ...]}; the stacks
are innermost first.
"""
import json
import sys

import torch

MADE = {}


def stack_from(frame):
    stack = []
    while frame is not None:
        code = frame.f_code
        stack.append([getattr(code, "co_qualname", code.co_name), frame.f_lineno])
        frame = frame.f_back
    return stack


class Model:
    def forward(self, n):
        size = 4096 * n + 64
        stack, tensor = stack_from(sys._getframe()), torch.empty(size, dtype=torch.uint8)
        MADE[size] = stack
        return tensor


def step(model, kept):
    for n in range(101, 111):
        tensor = model.forward(n)
        if n % 2:
            kept.append(tensor)


if __name__ == "__main__":
    alive = []
    step(Model(), alive)
    print(json.dumps({"made": MADE, "kept": [tensor.numel() for tensor in alive]}))
