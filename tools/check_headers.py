#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the hook table against every set of CUDA headers to be found.

usage: check_headers.py [DIR]...

Lists, for each set, the entry points of cuda.h and cuda_runtime_api.h that
allocate, free, map, import, resize or pin memory (all versions and
per-thread-stream twins), and fails where one is neither hooked nor waived in
preload/hooks/waivers.txt. Ends with the waivers in use.

Looks in each DIR; else in /usr/local/cuda*/include, $CUDA_HOME/include and
build*/cuda-headers/*/include, where tools/fetch_cuda_headers.sh puts others.
Exits 77 where there is none.
"""
import glob
import os
import sys

import check_hooks

PLACES = (
    "/usr/local/cuda*/include",
    os.path.join(check_hooks.ROOT, "build", "cuda-headers", "*", "include"),
)
NEEDED = ("cuda.h", "cuda_runtime_api.h")


def find_all():
    """One folder per CUDA version, oldest first."""
    places = list(PLACES)
    if os.environ.get("CUDA_HOME"):
        places.insert(0, os.path.join(os.environ["CUDA_HOME"], "include"))
    found = {}
    for pattern in places:
        for folder in sorted(glob.glob(pattern)):
            if all(os.path.exists(os.path.join(folder, name)) for name in NEEDED):
                found.setdefault(check_hooks.cuda_version(folder), folder)
    return [found[version] for version in sorted(found)]


def main():
    folders = sys.argv[1:] or find_all()
    if not folders:
        print("SKIP: no CUDA headers (tools/fetch_cuda_headers.sh gets some)")
        return 77
    rows = check_hooks.parse_table(check_hooks.read(check_hooks.TABLE))
    waivers = check_hooks.parse_waivers(check_hooks.read(check_hooks.WAIVERS))
    faults, used = [], {}
    for folder in folders:
        check_hooks.check_headers(folder, rows, waivers, faults, used)
    print("waived:")
    check_hooks.print_waivers(used)
    for fault in faults:
        print(fault)
    if not faults:
        print(f"check_headers: {len(folders)} sets of headers, nothing missed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
