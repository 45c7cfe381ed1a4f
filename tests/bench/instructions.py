#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of one tensor allocation and free under the preload.

usage: instructions.py --library LIBDSTRACE --fakes FOLDER --pairs PROGRAM
                       --pairs-library LIBRARY [--bounds FILE]

Runs the pair many times under callgrind, twice with different counts: the
difference is the pair alone, start-up and first sights left out. Exits 1 when a
bound of the file is exceeded, 77 (skipped) without valgrind.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

FEW, MANY = 2000, 8000
HERE = os.path.dirname(os.path.abspath(__file__))

# The recursion stands on lines of its own: each depth is another frame.
PYTHON = """
import ctypes, sys
run = ctypes.CDLL(sys.argv[1]).pairs_run
def at_depth(depth, count):
    if depth > 1:
        return at_depth(depth - 1, count)
    run(ctypes.c_long(count))
at_depth(int(sys.argv[3]), int(sys.argv[2]))
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--fakes", required=True)
    parser.add_argument("--pairs", required=True)
    parser.add_argument("--pairs-library", required=True)
    parser.add_argument("--bounds", default=os.path.join(HERE, "pair_bounds.json"))
    return parser.parse_args()


def real_python():
    """The interpreter itself: a version manager's `python3` is a shell script."""
    return os.path.realpath(sys.executable)


def instructions(options, stacks, command, folder):
    environment = dict(
        os.environ,
        LD_PRELOAD=options.library,
        LD_LIBRARY_PATH=options.fakes,
        DSTRACE_OUTPUT=os.path.join(folder, "run.pb"),
        DSTRACE_STACKS=stacks,
        PYTHONHASHSEED="0")
    # valgrind and its launcher must not be traced themselves.
    preloads = ["env"] + ["%s=%s" % (name, environment.pop(name))
                          for name in ("LD_PRELOAD", "LD_LIBRARY_PATH")]
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--trace-children=yes",
         "--callgrind-out-file=%s/profile" % folder] + preloads + command,
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        universal_newlines=True)
    counts = re.findall(r"Collected : (\d+)", done.stdout)
    trace = os.path.join(folder, "run.pb")
    if done.returncode != 0 or not counts or not os.path.exists(trace):
        raise SystemExit("instructions.py: %s failed or wrote no trace:\n%s"
                         % (" ".join(command), done.stdout[-2000:]))
    os.remove(trace)
    return int(counts[-1])


def per_pair(options, case, folder):
    caller, stacks, depth = case.split()
    counts = []
    for count in (FEW, MANY):
        if caller == "native":
            command = [options.pairs, str(count), depth]
        else:
            command = [real_python(), "-S", "-c", PYTHON, options.pairs_library,
                       str(count), depth]
        counts.append(instructions(options, stacks, command, folder))
    return (counts[1] - counts[0]) / (MANY - FEW)


def main():
    options = arguments()
    if shutil.which("valgrind") is None:
        print("SKIP: valgrind is not installed")
        return 77
    with open(options.bounds, encoding="utf-8") as file:
        bounds = json.load(file)
    bounds.pop("comment", None)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for case, bound in bounds.items():
            measured = per_pair(options, case, folder)
            exceeded = measured > bound
            failed |= exceeded
            print("%-18s %7.1f instructions a pair, bound %5d%s"
                  % (case, measured, bound, "  EXCEEDED" if exceeded else ""),
                  flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
