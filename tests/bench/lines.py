#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the cache lines that the report of one tensor touches under the preload.

usage: lines.py --library LIBDSTRACE --fakes FOLDER --cold PROGRAM
                --cold-library LIBRARY [--bounds FILE] [--functions]

Runs events that find the caches empty (cold.cc) under cachegrind, twice with
different counts: the difference in first-level misses is the lines of the
events alone. Exits 1 when a bound of the file is exceeded, 77 (skipped) without
valgrind. --functions: also which function touches how many.
"""
import os
import re
import sys
import tempfile

import gate

FEW, MANY = 150, 450
EVENTS = 2  # an allocation and a free
KIB = 192   # and a third of it of code: more than the caches that are simulated
# The bench itself, and what the loader's and the interpreter's ends make of it.
OTHERS = re.compile(r"cold_run|Timed|bench_plain_report|introsort|insertion_sort|partial|Eviction|TicksPer|Nanoseconds"
                    r"|\?\?\?$|malloc|_int_free|realloc|^free|consolidate|unlink_chunk")


def arguments():
    parser = gate.parser(__doc__, "line_bounds.json")
    parser.add_argument("--cold", required=True)
    parser.add_argument("--cold-library", required=True)
    parser.add_argument("--functions", action="store_true")
    return parser.parse_args()


def profile(options, stacks, command, folder):
    """{function: [code lines, data lines]} of a whole run."""
    out = os.path.join(folder, "profile")
    gate.run(options, ["--tool=cachegrind", "--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64",
                       "--LL=1048576,16,64", "--cachegrind-out-file=" + out], stacks, command, folder)
    functions, function, columns = {}, None, {}
    with open(out, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("events:"):
                columns = {name: i for i, name in enumerate(line.split())}
            elif line.startswith("fn="):
                function = functions.setdefault(line[3:].strip(), [0, 0])
            elif line[:1].isdigit() and function is not None:
                numbers = line.split()
                function[0] += int(numbers[columns["I1mr"]])
                function[1] += int(numbers[columns["D1mr"]]) + int(numbers[columns["D1mw"]])
    return functions


def per_event(options, case, folder):
    caller, stacks, depth = case.split()
    runs = []
    for count in (FEW, MANY):
        call = "cold_run(ctypes.c_long(count), ctypes.c_long(%d))" % KIB
        command = ([options.cold, str(count), depth, str(KIB)] if caller == "native" else
                   gate.python_command(options.cold_library, call, count, depth))
        runs.append(profile(options, stacks, command, folder))
    few, many = runs
    result = {}
    for function, lines in many.items():
        if OTHERS.search(function):
            continue
        before = few.get(function, [0, 0])
        result[function] = [(b - a) / (MANY - FEW) / EVENTS for a, b in zip(before, lines)]
    return result


def main():
    options = arguments()
    if not gate.has_valgrind():
        return 77
    bounds = gate.bounds_of(options)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for case, bound in bounds.items():
            if case.startswith("python") and sys.version_info < (3, 11):
                print("%-18s not measured: the bound is for Python 3.11 and later" % case)
                continue
            functions = per_event(options, case, folder)
            code, data = (sum(lines[i] for lines in functions.values()) for i in (0, 1))
            exceeded = code + data > bound
            failed |= exceeded
            print("%-18s %6.1f lines an event (code %.1f, data %.1f), bound %d%s"
                  % (case, code + data, code, data, bound, "  EXCEEDED" if exceeded else ""), flush=True)
            if options.functions:
                for name, lines in sorted(functions.items(), key=lambda f: -sum(f[1])):
                    if sum(lines) >= 0.5:
                        print("    %5.1f code %5.1f data  %s" % (lines[0], lines[1], name[:90]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
