# SPDX-License-Identifier: Apache-2.0
"""What the gates share that hold a count of valgrind's against a bound: see instructions.py and lines.py."""
import argparse
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def parser(description, bounds):
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--library", required=True)
    result.add_argument("--fakes", required=True)
    result.add_argument("--bounds", default=os.path.join(HERE, bounds))
    return result


def bounds_of(options):
    with open(options.bounds, encoding="utf-8") as file:
        bounds = json.load(file)
    bounds.pop("comment", None)
    return bounds


def has_valgrind():
    if shutil.which("valgrind") is None:
        print("SKIP: valgrind is not installed")
        return False
    return True


def python_command(library, call, count, depth):
    """Calls `call` of `run`, a library, from Python at a depth. The recursion stands on lines of its own: each depth is
    another frame. The interpreter itself: a version manager's `python3` is a shell script."""
    program = """
import ctypes, sys
run = ctypes.CDLL(sys.argv[1])
def at_depth(depth, count):
    if depth > 1:
        return at_depth(depth - 1, count)
    run.%s
at_depth(int(sys.argv[3]), int(sys.argv[2]))
""" % call
    return [os.path.realpath(sys.executable), "-S", "-c", program, library, str(count), depth]


def run(options, tool, stacks, command, folder):
    """valgrind's output. `command` runs under the preload; it must write a trace. `stacks`: DSTRACE_STACKS, or that and
    "/" and DSTRACE_LOG_LIMIT."""
    stacks, _, limit = stacks.partition("/")
    environment = dict(os.environ, DSTRACE_OUTPUT=os.path.join(folder, "run.pb"), DSTRACE_STACKS=stacks,
                       DSTRACE_LOG_LIMIT=limit, PYTHONHASHSEED="0")
    # valgrind and its launcher must not be traced themselves.
    preload = ["env", "LD_PRELOAD=" + options.library, "LD_LIBRARY_PATH=" + options.fakes]
    done = subprocess.run(["valgrind", "--trace-children=yes"] + tool + preload + command, env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    trace = os.path.join(folder, "run.pb")
    if done.returncode != 0 or not os.path.exists(trace):
        raise SystemExit("%s failed or wrote no trace:\n%s" % (" ".join(command), done.stdout[-2000:]))
    os.remove(trace)
    return done.stdout
