#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what libdstrace.so shows to, and wants from, the traced process.

usage: check_exports.py LIBRARY [SYMBOL]...

  - it exports exactly the rows of preload/hooks/hook_table.inc, or where there
    are any exactly the SYMBOLs, unversioned;
    in particular no _Unwind_*, no C++ runtime, nothing of libunwind
  - DT_NEEDED is libc and the loader only
  - no symbol version above GLIBC_2.28
  - it may not need an executable stack or text relocations

Exits 1 with a line per fault, 77 where readelf is missing.
"""
import re
import shutil
import subprocess
import sys

import check_hooks

MAY_NEED = {"libc.so.6", "ld-linux-x86-64.so.2"}
GLIBC_FLOOR = (2, 28)


def readelf(*arguments):
    return subprocess.run(["readelf", "--wide", *arguments], check=True,
                          capture_output=True, text=True).stdout


def dynamic_symbols(library):
    """[(name, version or None, is_defined)]"""
    symbols = []
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
            continue
        name, _, version = fields[7].partition("@")
        if name:
            symbols.append((name, version.lstrip("@") or None,
                            fields[6] != "UND"))
    return symbols


def hooks():
    return {row.symbol for row in
            check_hooks.parse_table(check_hooks.read(check_hooks.TABLE))}


def check_exported(symbols, wanted, faults):
    exported = {name for name, _, defined in symbols if defined}
    for name in sorted(wanted - exported):
        faults.append(f"not exported: {name}")
    for name in sorted(exported - wanted):
        faults.append(f"exported, but no hook: {name}")
    for name, version, defined in symbols:
        if defined and version:
            faults.append(f"exported with a version: {name}@{version}")


def check_needed(library, faults):
    dynamic = readelf("--dynamic", library)
    for name in re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic):
        if name not in MAY_NEED:
            faults.append(f"DT_NEEDED: {name}")
    for tag in ("TEXTREL", "RPATH", "RUNPATH"):
        if f"({tag})" in dynamic:
            faults.append(f"DT_{tag}")
    if re.search(r"GNU_STACK.*RWE", readelf("--segments", library)):
        faults.append("executable stack")


def check_versions(symbols, faults):
    for name, version, defined in symbols:
        if defined or not version:
            continue
        match = re.match(r"GLIBC_(\d+)\.(\d+)", version)
        if match is None:
            faults.append(f"not of glibc: {name}@{version}")
        elif (int(match.group(1)), int(match.group(2))) > GLIBC_FLOOR:
            faults.append(f"too new: {name}@{version}")


def main():
    if len(sys.argv) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    if shutil.which("readelf") is None:
        print("SKIP: no readelf (apt-get install binutils)")
        return 77
    library = sys.argv[1]
    faults = []
    symbols = dynamic_symbols(library)
    check_exported(symbols, set(sys.argv[2:]) or hooks(), faults)
    check_needed(library, faults)
    check_versions(symbols, faults)
    for fault in faults:
        print(f"{library}: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
