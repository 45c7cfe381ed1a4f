#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what dstrace says against torch, the driver and CUPTI, for every workload of a GPU run.

  tests/gpu/compare.py [--report build/.../dstrace-report] RESULTS.json TRACES [NAME...]

RESULTS.json and the folder TRACES are what tests/gpu/run.sh wrote. At each CHECKPOINT of each traced process and for each
device it compares, at that very instant of CLOCK_MONOTONIC:
  allocated  torch.cuda.memory_allocated()  with the model's live tensors      must be equal to the byte
  reserved   torch.cuda.memory_reserved()   with what torch holds of the driver must be equal to the byte
  used       cuMemGetInfo                   with the sum of the ledger's named lines; the difference is the residual
Programs without torch have the last line only. Then, over the whole trace:
  samples    the residual at every sample after the context exists: at most 32 MiB or 1 % of device use
  CUPTI      where it ran, its allocations and bytes with the hooks', kind by kind: must be equal, and none lost. Compared:
             device memory (with mappings of it, opened handles and graphs' memory), managed, pinned or registered host
             memory, arrays. Mappings that CUPTI does not report are said, and no difference
Prints one table, a line per workload, and with --all a line per checkpoint. Exits 1 if anything of it differs, or nothing
was compared.
  --no-limit  residuals are printed, but do not count as a difference
"""
import argparse
import collections
import glob
import json
import os
import subprocess
import sys

MIB = 1 << 20
TORCH = ("allocated", "reserved")
KINDS = ("managed", "pinned", "array")  # beside device memory


def find_report():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")
    found = glob.glob(os.path.join(root, "**", "dstrace-report"), recursive=True)
    return max((f for f in found if os.path.isfile(f)), key=os.path.getmtime, default=None)


def run_report(report, trace, *options):
    return subprocess.run([report, trace, *options], stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout


def ledgers(report, trace, times=None):
    """{(monotonic ns, device): ledger} at those times; without, [(ns, device, ledger)] at every sample."""
    options = [] if times is None else ["--at", ",".join("@%d" % t for t in times)]
    lines = run_report(report, trace, "--format", "ledgers", *options).splitlines()
    points = [(p["monotonic_ns"], p["device"], p["ledger"]) for p in map(json.loads, lines)]
    return points if times is None else {(t, d): ledger for t, d, ledger in points}


def traces_of(folder, name):
    """{pid: file} of a workload; names are NAME-rank-pid.pb."""
    return {int(f.rsplit("-", 1)[1][:-3]): f
            for f in glob.glob(os.path.join(glob.escape(folder), glob.escape(name) + "-*-*.pb"))}


def beyond(residual, used):
    return abs(residual) > max(32 * MIB, used // 100)


def worst(pairs):
    return max((abs(r) for r, _ in pairs), default=0) / MIB


class Workload:
    def __init__(self, name):
        self.name = name
        self.checkpoints = 0
        self.compared = dict.fromkeys(TORCH, 0)
        self.wrong = dict.fromkeys(TORCH, 0)
        self.faults = []      # a line each
        self.notes = []       # of what CUPTI counts otherwise, a line each
        self.residuals = []   # (bytes, used) at checkpoints
        self.samples = []     # (bytes, used) at every sample after the context
        self.cupti = None     # {"cupti" or "hooks": [count, bytes]}, over all processes

    def add_torch(self, where, device, ledger):
        model = {"allocated": 0, "reserved": 0} if ledger is None else {
            "allocated": ledger["torch_live"], "reserved": ledger["torch_reserved"]}
        for key in TORCH:
            self.compared[key] += 1
            if model[key] != device[key]:
                self.wrong[key] += 1
                self.faults.append("%s: torch says %s %d, the model %d (%+d)" % (
                    where, key, device[key], model[key], model[key] - device[key]))

    def add(self, checkpoint, device, ledger, verbose):
        where = "%s pid %d %s GPU %d" % (self.name, checkpoint["pid"], checkpoint["step"], device["device"])
        if "allocated" in device:
            self.add_torch(where, device, ledger)
        if ledger is None:
            if "allocated" not in device:
                self.faults.append("%s: the model knows nothing of this device" % where)
            return
        # The model's idea of device use is the last sample brought forward; here the driver was asked again.
        residual = device["used"] - (ledger["device_used"] - ledger["unexplained"])
        self.residuals.append((residual, device["used"]))
        if verbose:
            print("%-70s allocated %12s reserved %12s used %13d residual %+9.1f MiB" % (
                where, device.get("allocated", "-"), device.get("reserved", "-"), device["used"], residual / MIB))

    def add_cupti(self, trace, check):
        sums = self.cupti = self.cupti or {"cupti": [0, 0], "hooks": [0, 0], "mapped": [0, 0]}
        name = os.path.basename(trace)
        pairs = [(kind, check["cupti"][kind], check["hooks"][kind]) for kind in KINDS]
        pairs.append(("device", check["cupti"]["device"], check["hooks_on_device"]))
        for kind, cupti, hooks in pairs:
            for side, sum_of in (("cupti", cupti), ("hooks", hooks)):
                sums[side][0] += sum_of["count"]
                sums[side][1] += sum_of["bytes"]
            if not check["device_agrees"] if kind == "device" else cupti != hooks:
                self.faults.append("%s: CUPTI says %s %s, the hooks %s" % (name, kind, cupti, hooks))
        sums["mapped"][0] += check["hooks"]["mapped"]["count"]
        sums["mapped"][1] += check["hooks"]["mapped"]["bytes"]
        self.notes += ["%s: %s" % (name, note) for note in check["notes"]]
        for loss in ("dropped", "unknown"):
            if check[loss]:
                self.faults.append("%s: CUPTI: %d records %s" % (name, check[loss], loss))

    def over_limit(self):
        return sum(beyond(*pair) for pair in self.residuals + self.samples)


def devices_of(checkpoint):
    """What a checkpoint says of devices: torch's figures with the driver's, or the driver's alone."""
    if checkpoint.get("devices"):
        return checkpoint["devices"]
    used = checkpoint.get("driver_used")
    return [] if used is None else [{"device": 0, "used": used}]


def compare(row, folder, report, verbose):
    work = Workload(row["name"])
    traces = traces_of(folder, row["name"])
    by_pid = collections.defaultdict(list)
    for checkpoint in row["checkpoints"]:
        if devices_of(checkpoint) and checkpoint["pid"] in traces:
            by_pid[checkpoint["pid"]].append(checkpoint)
    for pid, checkpoints in sorted(by_pid.items()):
        at = ledgers(report, traces[pid], sorted({c["mono_ns"] for c in checkpoints}))
        for checkpoint in checkpoints:
            work.checkpoints += 1
            for device in devices_of(checkpoint):
                work.add(checkpoint, device, at.get((checkpoint["mono_ns"], device["device"])), verbose)
    for _, trace in sorted(traces.items()):
        work.samples += [(ledger["unexplained"], ledger["device_used"])
                         for _, _, ledger in ledgers(report, trace) if ledger["context"] > 0]
        check = json.loads(run_report(report, trace, "--format", "json")).get("cupti")
        if check is not None:
            work.add_cupti(trace, check)
    return work


HEAD = ("workload", "checkpoints", "allocated", "reserved", "CUPTI", "hooks", "mapped", "residual", "at samples",
        "over limit")
LINE = "%-24s %11s %10s %10s %17s %17s %14s %9s %10s %11s"


def line_of(work):
    def totals(key):
        right = work.compared[key] - work.wrong[key]
        if not work.compared[key]:
            return "-"
        return "equal" if not work.wrong[key] else "%d of %d" % (right, work.compared[key])

    def counted(side):
        if work.cupti is None or (side == "mapped" and not work.cupti[side][0]):
            return "-"
        return "%d, %.1f" % (work.cupti[side][0], work.cupti[side][1] / MIB)

    return LINE % (work.name, work.checkpoints, totals("allocated"), totals("reserved"), counted("cupti"),
                   counted("hooks"), counted("mapped"), "%.1f" % worst(work.residuals), "%.1f" % worst(work.samples),
                   "%d of %d" % (work.over_limit(), len(work.residuals) + len(work.samples)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("traces")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--report", default=None)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--no-limit", action="store_true")
    options = parser.parse_args()
    report = options.report or find_report()
    if report is None:
        parser.error("no dstrace-report under build/; say --report")
    with open(options.results, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    print(LINE % HEAD)
    faults = []
    notes = []
    compared = over = 0
    for row in rows:
        if options.names and row["name"] not in options.names:
            continue
        work = compare(row, options.traces, report, options.all)
        if not work.checkpoints and not work.samples:
            continue
        compared += work.checkpoints + len(work.samples)
        over += work.over_limit()
        faults += work.faults
        notes += work.notes
        print(line_of(work), flush=True)
    print("CUPTI, hooks: allocations, MiB; mapped: of them cuMemMap; residual in MiB: largest at a checkpoint, at any sample")
    for note in notes:
        print(note)
    for fault in faults[:40]:
        print(fault, file=sys.stderr)
    if len(faults) > 40:
        print("and %d more" % (len(faults) - 40), file=sys.stderr)
    if not compared:
        print("nothing to compare: no trace in %s belongs to a workload" % options.traces, file=sys.stderr)
    return 1 if faults or not compared or (over and not options.no_limit) else 0


if __name__ == "__main__":
    sys.exit(main())
