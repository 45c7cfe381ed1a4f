#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds hook_table.inc, its exports, its tests and CUDA's headers together.

usage: check_hooks.py [--write] [--waivers] [--cuda DIR]...

Checks that every row of preload/hooks/hook_table.inc is exported by
exports.map and exercised in tests/hooks/, and that nothing else is exported.
With CUDA headers (each --cuda DIR; else $DSTRACE_CUDA_INCLUDE,
$CUDA_HOME/include or /usr/local/cuda/include) it also checks that every entry
point which allocates, frees, maps, imports, resizes or pins memory, in every
version and per-thread-stream twin, is hooked or waived, and that each driver
row's version is one under which the headers know it.

  --write    rewrites exports.map from the table
  --waivers  prints what is not hooked and why

Exits 1 with a line per fault.
"""
import argparse
import fnmatch
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = "preload/hooks/hook_table.inc"
EXPORTS = "preload/hooks/exports.map"
WAIVERS = "preload/hooks/waivers.txt"
TESTS = "tests/hooks"

EXPORTS_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Anonymous on purpose: a named version would hide our cudaMalloc from callers
# that were linked against cudaMalloc@libcudart.so.N. Written by
# tools/check_hooks.py --write from hook_table.inc.
"""

# What an entry point's name says when it concerns memory that the device, or
# pinned host memory that the ledger, has to account for.
CONCERNS_MEMORY = re.compile(
    r"^cu(da)?("
    r".*(Alloc|Free(?!ze)|Malloc)"
    r"|Mem(Create|Release|Map|Unmap|Address|Set(Access|MemPool)|Pool|Export|"
    r"Import|Retain|HostRegister|HostUnregister|HostAlloc|GetMemPool|"
    r"GetDefaultMemPool|GetHandleForAddressRange)"
    r"|Host(Register|Unregister|Alloc)"
    r"|.*Pool"
    r"|Ipc(Get|Open|Close)Mem"
    r"|.*(Import|Export).*(Memory|Handle|Pointer)|.*ExternalMemory"
    r"|Array(3D)?(Create|Destroy)|MipmappedArray(Create|Destroy)"
    r"|GetMipmappedArrayLevel|MipmappedArrayGetLevel"
    r"|(Device)?PrimaryCtx(Retain|Release|Reset|SetFlags)"
    r"|Device(PrimaryCtx(Retain|Release|Reset|SetFlags)|Reset|SetLimit)"
    r"|Ctx(Create|Destroy|Attach|Detach|SetLimit|FromGreenCtx)"
    r"|ThreadExit|ThreadSetLimit|InitDevice|SetDevice(Flags)?$"
    r"|GreenCtx(Create|Destroy)|.*Multicast"
    r"|Module(Load|Unload)|Library(Load|Unload)|Link(Create|Complete|Destroy)"
    r"|.*Graph(Instantiate|ExecDestroy|Destroy|Launch|Upload|Mem|AddNode|Exec"
    r"(Update|NodeSetParams))"
    r"|Stream(Begin|End)Capture"
    r"|Graphics(Map|Unmap|Register|Unregister|Resource.*Mapped|SubResource|"
    r"GL|VDPAU|EGL|D3D)"
    r"|GetProcAddress|GetDriverEntryPoint|GetExportTable"
    r")")


class Row:
    def __init__(self, layer, fields, line):
        self.layer = layer
        self.symbol = fields[0]
        self.line = line
        self.base = self.since = self.mode = self.body = None
        if layer == "DRIVER":
            self.base, since, self.mode, self.body = fields[1:5]
            self.since = int(since)
        elif layer not in ("CUPTI", "LIBC", "MARK"):
            self.body = fields[1]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def parse_table(text):
    """Rows in order. Only the leading identifier columns matter here."""
    rows = []
    pattern = re.compile(r"^DSTRACE_(\w+)_HOOK\(([^()]*)", re.M)
    for match in pattern.finditer(text):
        fields = [field.strip() for field in match.group(2).split(",")
                  if field.strip()]
        line = text.count("\n", 0, match.start()) + 1
        rows.append(Row(match.group(1), fields, line))
    return rows


def exports_text(rows):
    names = "".join(f"    {row.symbol};\n" for row in rows)
    return f"{EXPORTS_HEAD}{{\n  global:\n{names}  local:\n    *;\n}};\n"


def parse_waivers(text):
    """[(pattern, reason)]; a reason goes on until the next pattern."""
    waivers = []
    for line in text.splitlines():
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        pattern, found, reason = line.partition(":")
        if not found or not reason.strip():
            raise SystemExit(f"{WAIVERS}: no reason given: {line}")
        waivers.append((pattern.strip(), reason.strip()))
    return waivers


def strip_comments(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"//[^\n]*", " ", text)


def functions_of(path):
    """Every function a header declares, with per-thread-stream twins."""
    text = strip_comments(open(path, encoding="utf-8", errors="replace").read())
    names = set(re.findall(
        r"\b(?:CUresult\s+CUDAAPI|cudaError_t\s+CUDARTAPI)\s+(cu\w+)\s*\(",
        text))
    names |= set(re.findall(r"cudaError_t\s+CUDARTAPI_CDECL\s+(cu\w+)\s*\(",
                            text))
    for base, twin in re.findall(
            r"#\s*define\s+\w+\s+__CUDA(?:RT)?_API_(?:PTSZ|PTDS)\((\w+)\)()",
            text):
        names.add(base + "_ptsz")
    for kind, base in re.findall(
            r"__CUDA(?:RT)?_API_(PTSZ|PTDS)\((\w+)\)", text):
        names.discard(base + "_ptsz")
        names.add(f"{base}_{kind.lower()}")
    # The headers rename the current version: cuMemAlloc is cuMemAlloc_v2.
    names |= set(re.findall(r"#\s*define\s+cu\w+\s+(cu\w+_v\d+)\s", text))
    return {name for name in names if not re.search(r"_v\d+_v\d+", name)}


def typedef_versions(path):
    """{(base, version, per_thread)} of cudaTypedefs.h."""
    if not os.path.exists(path):
        return None
    text = strip_comments(open(path, encoding="utf-8").read())
    found = re.findall(r"\bPFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\b", text)
    return {(base, int(version), bool(twin)) for base, version, twin in found}


def cuda_version(include):
    text = open(os.path.join(include, "cuda.h"), encoding="utf-8",
                errors="replace").read()
    number = int(re.search(r"#define\s+CUDA_VERSION\s+(\d+)", text).group(1))
    return number


def check_headers(include, rows, waivers, faults, used):
    version = cuda_version(include)
    label = f"CUDA {version // 1000}.{version % 1000 // 10}"
    names = set()
    for header in ("cuda.h", "cuda_runtime_api.h"):
        names |= functions_of(os.path.join(include, header))
    hooked = {row.symbol for row in rows}
    waived = 0
    for name in sorted(filter(CONCERNS_MEMORY.match, names)):
        if name in hooked:
            continue
        match = next((w for w in waivers if fnmatch.fnmatchcase(name, w[0])),
                     None)
        if match is None:
            faults.append(f"{TABLE}: {name} ({label}) is neither hooked nor "
                          f"waived in {WAIVERS}")
        else:
            waived += 1
            used.setdefault(match, set()).add(name)
    typedefs = typedef_versions(os.path.join(include, "cudaTypedefs.h"))
    if typedefs is not None:
        check_versions(rows, version, typedefs, label, faults)
    present = len(hooked & names)
    print(f"check_hooks: {label}: {present} hooked, {waived} waived")
    return names


def check_versions(rows, version, typedefs, label, faults):
    known = {base for base, _, _ in typedefs}
    for row in rows:
        if row.layer != "DRIVER" or row.since > version or \
                row.base not in known:
            continue
        if (row.base, row.since, row.mode == "kPerThread") not in typedefs:
            faults.append(f"{TABLE}:{row.line}: {row.symbol}: {label} has no "
                          f"{row.base} of version {row.since}")


def check_tests(rows, faults):
    text = ""
    folder = os.path.join(ROOT, TESTS)
    for name in sorted(os.listdir(folder)):
        if name.endswith((".h", ".cc", ".py")):
            text += read(f"{TESTS}/{name}")
    for row in rows:
        if row.layer in ("CUPTI", "TORCH", "LIBC", "MARK"):
            wanted = row.symbol
            found = re.search(rf"\b{re.escape(row.symbol)}\b", text)
        else:
            wanted = f"Exercise{row.body}()"
            found = re.search(rf"\bExercise{row.body}\(\s*const Target", text)
        if not found:
            faults.append(f"{TABLE}:{row.line}: {row.symbol}: no test: "
                          f"{wanted} is not in {TESTS}/")


def check_table(rows, faults):
    seen = {}
    for row in rows:
        if row.symbol in seen:
            faults.append(f"{TABLE}:{row.line}: {row.symbol} is also on line "
                          f"{seen[row.symbol]}")
        seen[row.symbol] = row.line
        if row.layer != "DRIVER":
            continue
        twin = row.symbol.endswith(("_ptsz", "_ptds"))
        if twin != (row.mode == "kPerThread"):
            faults.append(f"{TABLE}:{row.line}: {row.symbol}: {row.mode}?")
        base = re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", row.symbol)
        if base != row.base:
            faults.append(f"{TABLE}:{row.line}: {row.symbol}: base should be "
                          f"{base}, not {row.base}")


def find_headers(given):
    if given:
        return given
    home = os.environ.get("CUDA_HOME", "")
    for folder in (os.environ.get("DSTRACE_CUDA_INCLUDE", ""),
                   os.path.join(home, "include") if home else "",
                   "/usr/local/cuda/include"):
        if folder and os.path.exists(os.path.join(folder, "cuda.h")):
            return [folder]
    return []


def print_waivers(used):
    for (pattern, reason), names in sorted(used.items()):
        print(f"  {pattern} ({len(names)}): {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--waivers", action="store_true")
    parser.add_argument("--cuda", action="append", metavar="DIR")
    options = parser.parse_args()

    rows = parse_table(read(TABLE))
    if options.write:
        with open(os.path.join(ROOT, EXPORTS), "w", encoding="utf-8") as file:
            file.write(exports_text(rows))
    faults = []
    check_table(rows, faults)
    if read(EXPORTS) != exports_text(rows):
        faults.append(f"{EXPORTS}: not what {TABLE} gives; run "
                      "tools/check_hooks.py --write")
    check_tests(rows, faults)
    waivers = parse_waivers(read(WAIVERS))
    used = {}
    headers = find_headers(options.cuda)
    for include in headers:
        check_headers(include, rows, waivers, faults, used)
    if not headers:
        print("check_hooks: no CUDA headers found; surface not checked")
    if options.waivers:
        print_waivers(used)
    for fault in faults:
        print(fault)
    if faults:
        return 1
    print(f"check_hooks: {len(rows)} rows, each exported and exercised")
    return 0


if __name__ == "__main__":
    sys.exit(main())
