#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every #include against the table of docs/ARCHITECTURE.md.

usage: check_layering.py [ROOT]     (default: the repository it lies in)

Prints one line per violation (file:line: why) and exits 1 if there is any.
"""
import os
import re
import sys

# Heap, locales and streams drag the C++ runtime into the traced process.
HOSTED_STD = {
    "iostream", "istream", "ostream", "fstream", "sstream", "iomanip", "ios",
    "filesystem", "regex", "locale", "string", "vector", "deque", "list",
    "map", "set", "unordered_map", "unordered_set", "functional", "memory",
    "mutex", "shared_mutex", "thread", "condition_variable", "future",
    "stdexcept", "any",
}

# Third-party headers by the first part of their path.
THIRD_PARTY = {
    "absl": "absl/",
    "protobuf": "google/protobuf/",
    "json": "nlohmann/",
    "elfutils": "elfutils/",
    "libunwind": "libunwind",
    "zstd": "zstd",
    "cuda": "cu",
    "gtest": "gtest/",
    "benchmark": "benchmark/",
}

GENERATED = {"proto/trace.pb.h"}


class Room:
    """A folder, what of ours it may include, and which third parties."""

    def __init__(self, own, third_party=(), never_std=frozenset()):
        self.own = own
        self.third_party = third_party
        self.never_std = never_std


RUNTIME, WIRE = "preload/runtime/", "proto/wire/"
RECORDER = "preload/capture/recorder.h"
TENSORS = "preload/capture/record_tensor.h"
SEAM = "preload/capture/cupti_seam.h"
MODEL = "analyzer/model/"

# Longest matching prefix wins. A room may always include itself.
ROOMS = {
    "proto/wire/": Room([]),
    "preload/runtime/": Room([], never_std=HOSTED_STD),
    "preload/stacks/": Room([RUNTIME, WIRE], ["libunwind"], HOSTED_STD),
    "preload/log/": Room([RUNTIME, WIRE], [], HOSTED_STD),
    "preload/capture/": Room(
        [RUNTIME, WIRE, "preload/stacks/", "preload/log/"], [], HOSTED_STD),
    "preload/hooks/": Room([RECORDER, TENSORS, SEAM, RUNTIME], ["cuda"], HOSTED_STD),
    # The composition root: the one place that knows every room.
    "preload/": Room(["preload/", WIRE], [], HOSTED_STD),
    "cupti/": Room([RECORDER, SEAM, RUNTIME], ["cuda"], HOSTED_STD),
    "analyzer/model/": Room([], ["absl"]),
    "analyzer/log/": Room([MODEL] + sorted(GENERATED), ["absl", "protobuf", "zstd"]),
    "analyzer/attribution/": Room([MODEL], ["absl", "json"]),
    "analyzer/symbolize/": Room([MODEL], ["absl", "elfutils"]),
    "analyzer/deepspeed/": Room([MODEL], ["absl", "json"]),
    "analyzer/report/": Room(
        [MODEL, "analyzer/attribution/", "analyzer/symbolize/",
         "analyzer/deepspeed/"], ["absl", "json"]),
    "analyzer/cli/": Room(["analyzer/"], ["absl", "json"]),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = (".h", ".cc", ".c", ".inc", ".S")


def room_of(path):
    matches = [prefix for prefix in ROOMS if path.startswith(prefix)]
    return max(matches, key=len) if matches else None


def third_party_of(include):
    for name, prefix in THIRD_PARTY.items():
        if not include.startswith(prefix):
            continue
        if name == "cuda" and not re.match(r"cu(da|pti)[a-z_]*\w*\.h$", include):
            continue
        return name
    return None


def is_ours(include, root):
    top = include.split("/", 1)[0]
    known = {"proto", "preload", "cupti", "analyzer", "tools", "tests"}
    return "/" in include and top in known and (
        include in GENERATED or os.path.exists(os.path.join(root, include)))


def judge(path, quote, include, root):
    """Why `path` may not include this, or None."""
    prefix = room_of(path)
    room = ROOMS[prefix]
    if is_ours(include, root):
        # A file of the composition root is its own room, not the whole tree.
        allowed = room.own + ([prefix] if prefix != "preload/" else [])
        if any(include.startswith(entry) for entry in allowed):
            return None
        return "%s may not include %s" % (prefix, include)
    name = third_party_of(include)
    if name is not None:
        if name in room.third_party:
            return None
        return "%s may not use %s (%s)" % (prefix, name, include)
    if include in room.never_std:
        return "%s may not use <%s>: it needs the C++ runtime" % (prefix, include)
    if quote == '"':
        return 'no "%s" from the repository root' % include
    return None


def sources(root):
    for top in ("proto", "preload", "cupti", "analyzer"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(folder, name), root)


def violations(root):
    for path in sources(root):
        if room_of(path) is None:
            yield "%s:1: in no room; add it to ROOMS in check_layering.py" % path
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                match = INCLUDE.match(line)
                why = match and judge(path, match[1], match[2], root)
                if why:
                    yield "%s:%d: %s" % (path, number, why)


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    root = sys.argv[1] if len(sys.argv) > 1 else here
    if not any(True for _ in sources(root)):
        print("check_layering: no sources under %s" % root)
        return 1
    found = list(violations(root))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
