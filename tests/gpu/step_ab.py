# SPDX-License-Identifier: Apache-2.0
"""What recording tensors costs a training step, within one process.

  LD_PRELOAD=libdstrace.so DSTRACE_OUTPUT=/tmp/ab.pb python3 tests/gpu/step_ab.py

On a shared host two processes differ by more than what is to be measured. So one process runs recorded and unrecorded
steps in turn: the slot through which torch's allocator calls its report (in libc10_cuda.so) is pointed at torch's own
function and back at the preload's. Everything else is the same: memory, GPU, host, minute. Prints one line per model;
hooks of the driver stay in place throughout (capture_cost.py has the whole difference, with its noise).

Without LD_PRELOAD it measures itself: both sides run the same code.   ROUNDS (default 150): pairs of steps
STEPS (default: all): which, see there
"""

import ctypes
import json
import os
import statistics
import struct
import sys
import time

import torch

import cost_child as models

SYMBOL = b"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
PAGE = 4096
PAIRS = 2000  # of a step that is nothing else


def loaded(name):
    """(path, base) of a loaded library."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            words = line.split()
            if len(words) > 5 and os.path.basename(words[5]) == name and int(words[2], 16) == 0:
                return words[5], int(words[0].split("-")[0], 16)
    raise SystemExit("%s is not loaded" % name)


class Elf:
    """The dynamic symbols and relocations of a library, from its file."""

    def __init__(self, path):
        with open(path, "rb") as file:
            head = file.read(64)
            offset, = struct.unpack_from("<Q", head, 0x28)
            size, count = struct.unpack_from("<HH", head, 0x3A)
            file.seek(offset)
            table = file.read(size * count)
            self.sections = [struct.unpack_from("<IIQQQQIIQQ", table, i * size) for i in range(count)]
            self.read = lambda s: (file.seek(s[4]), file.read(s[5]))[1]
            dynsym = next(s for s in self.sections if s[1] == 11)
            names = self.read(self.sections[dynsym[6]])
            raw = self.read(dynsym)
            self.symbols = []
            for at in range(0, len(raw), 24):
                name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", raw, at)
                self.symbols.append((names[name:names.index(b"\0", name)], value))
            self.relocations = [struct.unpack_from("<QQq", rela, at) for s in self.sections if s[1] == 4
                                for rela in [self.read(s)] for at in range(0, len(rela), 24)]

    def slots(self, symbol):
        return [offset for offset, info, _ in self.relocations if self.symbols[info >> 32][0] == symbol]

    def value(self, symbol):
        return next(value for name, value in self.symbols if name == symbol and value)


class Switch:
    """Who is called when torch's allocator reports."""

    def __init__(self):
        allocator, base = loaded("libc10_cuda.so")
        reporter, own_base = loaded("libc10.so")
        self.slots = [ctypes.c_uint64.from_address(base + offset) for offset in Elf(allocator).slots(SYMBOL)]
        if not self.slots:
            raise SystemExit("%s does not call the report" % allocator)
        self.hook = self.slots[0].value
        self.torchs = own_base + Elf(reporter).value(SYMBOL)
        for slot in self.slots:
            page = ctypes.addressof(slot) & -PAGE
            if ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), PAGE, 3) != 0:
                raise SystemExit("the slot cannot be written")

    def record(self, on):
        for slot in self.slots:
            slot.value = self.hook if on else self.torchs


def training(model, optimizer, tokens):
    def step():
        model(tokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()

    return step


def pairs():
    for _ in range(PAIRS):
        torch.empty(1024, device="cuda")


def bloom_1b():
    return (*models.bloom_1b(), torch.randint(250880, (2, 512), device="cuda"))


# Name: what makes the step, levels of recursion it is called under, pairs of steps for each of the ROUNDS.
STEPS = {
    "pair_depth_7": (lambda: pairs, 1, 1),
    "pair_depth_30": (lambda: pairs, 24, 1),
    "small_step": (lambda: training(*models.small()), 1, 1),
    "bloom_1b_step": (lambda: training(*bloom_1b()), 1, 0.5),
}


def compare(name, switch, rounds):
    make, depth, share = STEPS[name]
    rounds = int(rounds * share)
    return models.at_depth(depth, lambda: measure(name, make(), switch, rounds))


def measure(name, step, switch, rounds):
    for _ in range(8):
        step()
    before = models.event_count()
    step()
    events = models.event_count() - before
    times = {False: [], True: []}
    for number in range(rounds):
        for on in ((False, True) if number % 2 else (True, False)):
            switch.record(on)
            step()  # the first step on each side warms its caches, the second counts
            begun = time.perf_counter_ns()
            step()
            times[on].append((time.perf_counter_ns() - begun) / 1e6)
    switch.record(True)
    differences = sorted(b - a for a, b in zip(times[False], times[True]))
    bare = statistics.median(times[False])
    middle = statistics.median(differences)
    spread = 1.25 * statistics.pstdev(differences[rounds // 20:rounds - rounds // 20]) / rounds ** 0.5
    print("%-20s %5d events a step, unrecorded %8.3f ms, recorded %+.3f ms (+-%.3f) = %+.2f %%, %+.0f ns an event" % (
        name, events, bare, middle, spread, 100 * middle / bare, 1e6 * middle / events), flush=True)
    return {"name": name, "events": events, "bare_ms": bare, "difference_ms": middle, "spread_ms": spread,
            "percent": 100 * middle / bare}


def main():
    rounds = int(os.environ.get("ROUNDS", "150"))
    torch.empty(1, device="cuda")
    switch = Switch()
    print("stacks %s, %s" % (os.environ.get("DSTRACE_STACKS", "full"),
                             "preloaded" if switch.hook != switch.torchs else "not preloaded"))
    rows = [compare(name, switch, rounds) for name in os.environ.get("STEPS", ",".join(STEPS)).split(",")]
    if "AB_OUT" in os.environ:
        with open(os.environ["AB_OUT"], "w") as f:
            json.dump(rows, f)


if __name__ == "__main__":
    sys.exit(main())
