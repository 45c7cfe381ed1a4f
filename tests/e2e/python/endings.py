# SPDX-License-Identifier: Apache-2.0
"""Ways for a Python program to end, or to make another process.

usage: endings.py NAME
"""
import multiprocessing
import os
import signal
import sys

from cuda import allocate


def step():
    for _ in range(5):
        allocate()


def os_exit():
    os._exit(4)


def exception():
    raise RuntimeError("the program's own failure")


def sigterm():
    os.kill(os.getpid(), signal.SIGTERM)


def fork():
    child = os.fork()
    if child == 0:
        step()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    step()


def spawn():
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=step)
    child.start()
    child.join()
    assert child.exitcode == 0


def execute():
    os.execv(sys.executable, [sys.executable, "-c", "pass"])


if __name__ == "__main__":
    step()
    globals()[sys.argv[1]]()
