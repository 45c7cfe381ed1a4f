#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of one tensor allocation and free under the preload.

usage: instructions.py --library LIBDSTRACE --fakes FOLDER --pairs PROGRAM
                       --pairs-library LIBRARY [--bounds FILE]

Runs the pair many times under callgrind, twice with different counts: the
difference is the pair alone, start-up and first sights left out. Exits 1 when a
bound of the file is exceeded, 77 (skipped) without valgrind.
"""
import re
import sys
import tempfile

import gate

FEW, MANY = 2000, 8000


def arguments():
    parser = gate.parser(__doc__, "pair_bounds.json")
    parser.add_argument("--pairs", required=True)
    parser.add_argument("--pairs-library", required=True)
    return parser.parse_args()


def instructions(options, stacks, command, folder):
    output = gate.run(options, ["--tool=callgrind", "--callgrind-out-file=%s/profile" % folder], stacks, command, folder)
    counts = re.findall(r"Collected : (\d+)", output)
    if not counts:
        raise SystemExit("instructions.py: callgrind counted nothing:\n" + output[-2000:])
    return int(counts[-1])


def per_pair(options, case, folder):
    caller, stacks, depth = case.split()
    counts = []
    for count in (FEW, MANY):
        command = ([options.pairs, str(count), depth] if caller == "native" else
                   gate.python_command(options.pairs_library, "pairs_run(ctypes.c_long(count))", count, depth))
        counts.append(instructions(options, stacks, command, folder))
    return (counts[1] - counts[0]) / (MANY - FEW)


def main():
    options = arguments()
    if not gate.has_valgrind():
        return 77
    bounds = gate.bounds_of(options)
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
