#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks each source file's licence line, header guard, and the links in *.md.

usage: check_sources.py [ROOT]     (default: the repository it lies in)

Prints one line per violation (file:line: why) and exits 1 if there is any.
"""
import os
import re
import sys

CODE = (".h", ".cc", ".c", ".S", ".inc", ".py", ".sh", ".cmake", ".proto", ".map")
SPDX = "SPDX-License-Identifier: Apache-2.0"
# Not ours, or made by a build.
SKIPPED = {"build", "deps", "__pycache__", "node_modules", "samples"}
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)]*)?\)")


def files(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name for name in folders
            if name not in SKIPPED and not name.startswith("."))
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), root)


def lines_of(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read().splitlines()


def check_licence(path, lines):
    if not any(SPDX in line for line in lines[:4]):
        yield "%s:1: no '%s' at the top" % (path, SPDX)


def check_guard(path, lines):
    # Installed headers are included as <dstrace/...>.
    base = path[len("include/dstrace/"):] if path.startswith("include/dstrace/") else path
    guard = "DSTRACE_" + re.sub(r"[^A-Za-z0-9]", "_", base).upper() + "_"
    if "#ifndef %s" % guard not in lines or "#define %s" % guard not in lines:
        yield "%s:1: header guard is not %s" % (path, guard)


def check_links(root, path, lines):
    for number, line in enumerate(lines, 1):
        for match in LINK.finditer(line):
            target = match[1]
            if "://" in target or target.startswith("mailto:"):
                continue
            if not os.path.exists(os.path.join(root, os.path.dirname(path), target)):
                yield "%s:%d: broken link to %s" % (path, number, target)


def violations(root):
    for path in files(root):
        is_code = path.endswith(CODE) or os.path.basename(path) == "CMakeLists.txt"
        if not is_code and not path.endswith(".md"):
            continue
        lines = lines_of(root, path)
        if is_code:
            yield from check_licence(path, lines)
        # cmake/*.h is force-included, from C and assembly too.
        if path.endswith(".h") and not path.startswith("cmake/"):
            yield from check_guard(path, lines)
        if path.endswith(".md"):
            yield from check_links(root, path, lines)


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = list(violations(sys.argv[1] if len(sys.argv) > 1 else here))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
