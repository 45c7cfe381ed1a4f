# SPDX-License-Identifier: Apache-2.0
"""Compares every answer of the witness cache, in running Python, with a fresh
reading of the stack.

usage: DSTRACE_WITNESS_PROBE=LIBRARY witness_python_test.py [unittest arguments]
"""
import ctypes
import functools
import os
import random
import shutil
import sys
import tempfile
import threading
import unittest

FOLDER = tempfile.mkdtemp()
os.environ["DSTRACE_OUTPUT"] = os.path.join(FOLDER, "run.pb")
probe = ctypes.CDLL(os.environ["DSTRACE_WITNESS_PROBE"])
held = ctypes.PyDLL(os.environ["DSTRACE_WITNESS_PROBE"])
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
probe.probe_start()


def event():
    probe.probe_event()


def held_event():
    held.probe_event()


def nested(program, at=0):
    """Calls as a list of numbers says; an event at its end."""
    if at == len(program):
        event() if program[0] % 2 else held_event()
        return
    kind = program[at] % 7
    if kind == 0:
        nested(program, at + 1)
    elif kind == 1:
        next(generator(program, at + 1))
    elif kind == 2:
        probe.probe_through(CALLBACK(lambda n: nested(program, at + 1) or n), 1)
    elif kind == 3:
        sorted([1], key=lambda _: nested(program, at + 1) or 0)
    elif kind == 4:
        functools.partial(nested, program)(at=at + 1)
    elif kind == 5:
        Initialised(program, at + 1)
    else:
        scope = {"nested": nested, "program": program, "at": at + 1}
        exec("def made():\n%s    nested(program, at)\nmade()" % ("\n" * (program[at] % 3)), scope)


def generator(program, at):
    yield nested(program, at)


class Initialised(object):
    def __init__(self, program, at):
        nested(program, at)


def drive(seed, events):
    chance = random.Random(seed)
    programs = [[chance.randrange(100) for _ in range(chance.randrange(1, 9))]
                for _ in range(30)]
    for _ in range(events):
        program = list(chance.choice(programs))
        if chance.random() < 0.25:
            program[chance.randrange(len(program))] = chance.randrange(100)
        nested(program)


class WitnessTest(unittest.TestCase):
    def check(self, before, events):
        self.assertEqual(probe.probe_events() - before, events)
        self.assertEqual(probe.probe_wrong(), 0)

    def test_answers_as_a_fresh_reading_would(self):
        before = probe.probe_events()
        drive(1, 3000)
        self.check(before, 3000)

    def test_hits_when_a_stack_comes_back(self):
        hits = probe.probe_hits()
        for _ in range(1000):
            nested([1, 0, 1, 3, 5, 0])
        self.assertGreater(probe.probe_hits() - hits, 900)
        self.assertEqual(probe.probe_wrong(), 0)

    def test_threads_that_follow_each_other_keep_apart(self):
        before = probe.probe_events()
        for turn in range(5):
            threads = [threading.Thread(target=drive, args=(10 + n, 100)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.check(before, 2000)


if __name__ == "__main__":
    try:
        unittest.main()
    finally:
        shutil.rmtree(FOLDER)
