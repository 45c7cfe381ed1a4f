#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the model's figures against torch's and the driver's own, at every checkpoint of a GPU run.

  tests/gpu/compare.py [--report build/.../dstrace-report] RESULTS.json TRACES [NAME...]

RESULTS.json and the folder TRACES are what tests/gpu/run.sh wrote. At each CHECKPOINT of each traced process and for each
device it compares, at that very instant of CLOCK_MONOTONIC:
  allocated  torch.cuda.memory_allocated()  with the model's live tensors      must be equal to the byte
  reserved   torch.cuda.memory_reserved()   with what torch holds of the driver must be equal to the byte
  used       cuMemGetInfo                   with the sum of the ledger's named lines; the difference is the residual
Prints one line per workload and, with --all, per checkpoint. Exits 1 if a byte differs, or nothing was compared.
  --limit    also exit 1 where a residual, here or at any sample of a trace, is above 32 MiB and 1 % of device use
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
# Bytes of these owners are shown beside the residual: that they are seen at all is a check of its own.
LIBRARIES = ("nccl", "cublas")


def find_report():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")
    found = glob.glob(os.path.join(root, "**", "dstrace-report"), recursive=True)
    return max((f for f in found if os.path.isfile(f)), key=os.path.getmtime, default=None)


def ledgers(report, trace, times=None):
    """{(monotonic ns, device): ledger} at those times; without, [(ns, device, ledger)] at every sample."""
    command = [report, trace, "--format", "ledgers"]
    if times is not None:
        command += ["--at", ",".join("@%d" % t for t in times)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    points = [(p["monotonic_ns"], p["device"], p["ledger"]) for p in map(json.loads, lines)]
    return points if times is None else {(t, d): ledger for t, d, ledger in points}


def traces_of(folder, name):
    """{pid: file} of a workload; names are NAME-rank-pid.pb."""
    return {int(f.rsplit("-", 1)[1][:-3]): f
            for f in glob.glob(os.path.join(glob.escape(folder), glob.escape(name) + "-*-*.pb"))}


class Workload:
    def __init__(self, name):
        self.name = name
        self.checkpoints = 0
        self.compared = dict.fromkeys(TORCH, 0)
        self.faults = []      # a line each
        self.residuals = []   # (bytes, used) at checkpoints
        self.samples = []     # (bytes, used) at every sample after the context
        self.libraries = collections.Counter()  # most bytes at a checkpoint

    def add(self, checkpoint, device, ledger, verbose):
        where = "%s pid %d %s GPU %d" % (self.name, checkpoint["pid"], checkpoint["step"], device["device"])
        model = {"allocated": 0, "reserved": 0} if ledger is None else {
            "allocated": ledger["torch_live"], "reserved": ledger["torch_reserved"]}
        for key in TORCH:
            self.compared[key] += 1
            if model[key] != device[key]:
                self.faults.append("%s: torch says %s %d, the model %d (%+d)" % (
                    where, key, device[key], model[key], model[key] - device[key]))
        if ledger is None:
            return
        for owner in LIBRARIES:
            self.libraries[owner] = max(self.libraries[owner], ledger["libraries"].get(owner, 0))
        # The model's idea of device use is the last sample brought forward; here the driver was asked again.
        named = ledger["device_used"] - ledger["unexplained"]
        self.residuals.append((device["used"] - named, device["used"]))
        if verbose:
            print("%-70s allocated %12d reserved %12d used %13d residual %+9.1f MiB" % (
                where, device["allocated"], device["reserved"], device["used"], (device["used"] - named) / MIB))


def compare(row, folder, report, verbose):
    work = Workload(row["name"])
    traces = traces_of(folder, row["name"])
    by_pid = collections.defaultdict(list)
    for checkpoint in row["checkpoints"]:
        if checkpoint.get("devices") and checkpoint["pid"] in traces:
            by_pid[checkpoint["pid"]].append(checkpoint)
    for pid, checkpoints in sorted(by_pid.items()):
        at = ledgers(report, traces[pid], sorted({c["mono_ns"] for c in checkpoints}))
        for checkpoint in checkpoints:
            work.checkpoints += 1
            for device in checkpoint["devices"]:
                work.add(checkpoint, device, at.get((checkpoint["mono_ns"], device["device"])), verbose)
        for _, _, ledger in ledgers(report, traces[pid]):
            if ledger["context"] > 0:
                work.samples.append((ledger["unexplained"], ledger["device_used"]))
    return work


def beyond(residual, used):
    return abs(residual) > max(32 * MIB, used // 100)


def worst(pairs):
    return max((abs(r) for r, _ in pairs), default=0) / MIB


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("traces")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--report", default=None)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--limit", action="store_true")
    options = parser.parse_args()
    report = options.report or find_report()
    if report is None:
        parser.error("no dstrace-report under build/; say --report")
    with open(options.results, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    print("%-22s %11s %11s %11s %9s %9s %10s %10s %12s" % (
        "workload", "checkpoints", "allocated", "reserved", "nccl", "cublas", "residual", "at samples", "over limit"))
    bad = compared = 0
    faults = []
    for row in rows:
        if options.names and row["name"] not in options.names:
            continue
        work = compare(row, options.traces, report, options.all)
        if not work.checkpoints:
            continue
        compared += work.checkpoints
        over = sum(beyond(*pair) for pair in work.residuals + work.samples)
        wrong = {key: sum((" says %s " % key) in fault for fault in work.faults) for key in TORCH}
        print("%-22s %11d %11s %11s %9.1f %9.1f %10.1f %10.1f %12s" % (
            work.name, work.checkpoints,
            *("equal" if not wrong[key] else "%d of %d" % (work.compared[key] - wrong[key], work.compared[key])
              for key in TORCH),
            work.libraries["nccl"] / MIB, work.libraries["cublas"] / MIB, worst(work.residuals), worst(work.samples),
            "%d of %d" % (over, len(work.residuals) + len(work.samples))))
        faults += work.faults
        bad += over if options.limit else 0
    print("MiB; nccl and cublas: the most at a checkpoint; residual: the largest at a checkpoint, and at any sample")
    for fault in faults[:40]:
        print(fault, file=sys.stderr)
    if len(faults) > 40:
        print("and %d more" % (len(faults) - 40), file=sys.stderr)
    if not compared:
        print("nothing to compare: no trace in %s belongs to a checkpoint" % options.traces, file=sys.stderr)
    return 1 if faults or bad or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
