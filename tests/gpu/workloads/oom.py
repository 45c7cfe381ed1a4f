# SPDX-License-Identifier: Apache-2.0
"""Out of memory: under torch's own cap, from the driver, and (--uncaught) as the end of the program."""

import argparse

import torch

from common import checkpoint, note

GIB = 1 << 30


def grow_until_oom(piece):
    held = []
    while True:
        held.append(torch.empty(piece, dtype=torch.uint8, device="cuda"))


def expect_oom(step, action):
    try:
        action()
    except torch.OutOfMemoryError as error:
        note(step=step, message=str(error).splitlines()[0][:300])
        error.__traceback__ = None
    else:
        raise AssertionError(step + ": no OutOfMemoryError")
    checkpoint(step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--uncaught", action="store_true")
    args = parser.parse_args()
    total = torch.cuda.mem_get_info()[1]
    torch.ones(1, device="cuda")
    checkpoint("context")
    expect_oom("driver_refuses", lambda: torch.empty(2 * total, dtype=torch.uint8, device="cuda"))
    torch.cuda.set_per_process_memory_fraction(4 * GIB / total)
    expect_oom("cap_4_GiB", lambda: grow_until_oom(300 << 20))
    torch.cuda.empty_cache()
    checkpoint("emptied")
    if args.uncaught:
        grow_until_oom(500 << 20)


main()
