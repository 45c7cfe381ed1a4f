# SPDX-License-Identifier: Apache-2.0
"""What recording costs: bare, dstrace (Python stacks, full stacks) and torch's own recorder, in one interleaved run.

  PRELOAD=build/release/.../libdstrace.so OUT=folder python3 tests/gpu/capture_cost.py

Each round starts one short process per variant, in rotating order, so that a drift of the host hits all alike; costs
are medians over rounds of the difference to the bare run of the same round.
  VARIANTS  comma-separated subset of bare,python,full,none,torch_python,torch_all   (default: all but none)
  ROUNDS    default 5;  BUDGET  seconds, default 400: no round is begun that would not fit
Writes capture_cost.json to $OUT and prints the tables.
"""

import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import run
import trace_stats

HERE = os.path.dirname(os.path.abspath(__file__))
VARIANTS = {
    "bare": {},
    "python": {"DSTRACE_STACKS": "python"},
    "full": {"DSTRACE_STACKS": "full"},
    "none": {"DSTRACE_STACKS": "none"},
    "torch_python": {"COST_RECORDER": "python"},
    "torch_all": {"COST_RECORDER": "all"},
}
TRACED = ("python", "full", "none")
PHASES = (("pair_depth_3", "us"), ("pair_depth_30", "us"), ("small_step", "ms"), ("bloom_1b_step", "ms"),
          ("bloom_1b_long_step", "ms"))


def environment(variant, preload, folder, **more):
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "DSTRACE_OUTPUT", "DSTRACE_STACKS")}
    env.update(VARIANTS[variant], **more)
    if variant in TRACED:
        env.update(LD_PRELOAD=preload, DSTRACE_OUTPUT=os.path.join(folder, variant + "-%p.pb"))
    return env


def child(variant, preload, folder, detail):
    """One measured process; None if it failed (said on stderr)."""
    for old in glob.glob(os.path.join(glob.escape(folder), "*.pb")):
        os.unlink(old)
    env = environment(variant, preload, folder, COST_DETAIL="1" if detail else "0")
    begun = time.monotonic()
    try:
        done = subprocess.run([sys.executable, os.path.join(HERE, "cost_child.py")], env=env, capture_output=True,
                              text=True, timeout=120)
    except subprocess.TimeoutExpired:
        print("%s: no end after 120 s" % variant, file=sys.stderr)
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("COST ")]
    if not lines:
        print("%s: status %d\n%s" % (variant, done.returncode, done.stderr[-1500:]), file=sys.stderr)
        return None
    result = json.loads(lines[-1][5:])
    result["wall_s"] = time.monotonic() - begun
    traces = glob.glob(os.path.join(glob.escape(folder), variant + "-*.pb"))
    if variant in TRACED and not traces:
        print("%s: wrote no trace; is %s loaded?" % (variant, preload), file=sys.stderr)
        return None
    if detail and traces:
        result["trace"] = trace_stats.summarize(traces[0])
    return result


def start_up(preload, folder, command, times):
    """Median milliseconds from start to end of a process that never touches CUDA, bare and preloaded, alternating."""
    taken = {"bare": [], "full": []}
    for _ in range(times):
        for variant in taken:
            env = environment(variant, preload, folder)
            begun = time.perf_counter_ns()
            subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=False)
            taken[variant].append((time.perf_counter_ns() - begun) / 1e6)
    return {k: statistics.median(v) for k, v in taken.items()}


def rounds(variants, preload, folder):
    deadline = time.monotonic() + float(os.environ.get("BUDGET", "400"))
    wanted = int(os.environ.get("ROUNDS", "5"))
    results = {v: [] for v in variants}
    longest = 0.0
    for number in range(wanted):
        begun = time.monotonic()
        if begun + longest > deadline:
            print("stopped after %d of %d rounds: no time left" % (number, wanted))
            break
        order = variants[number % len(variants):] + variants[:number % len(variants)]
        for variant in order:
            results[variant].append(child(variant, preload, folder, detail=number == 0))
        longest = max(longest, time.monotonic() - begun)
    return results


def value(result, phase):
    return result["phases"].get(phase, {}).get("median") if result else None


def compare(results, phase):
    """For each variant: its median, and the median over rounds of (variant - bare of the same round)."""
    rows = {}
    for variant, runs in results.items():
        own = [value(r, phase) for r in runs]
        bare = [value(r, phase) for r in results.get("bare", runs)]
        pairs = [(a, b) for a, b in zip(own, bare) if a is not None and b is not None]
        if pairs:
            rows[variant] = {
                "median": statistics.median(a for a, _ in pairs), "min": min(a for a, _ in pairs),
                "over_bare": statistics.median(a - b for a, b in pairs),
                "percent": statistics.median(100 * (a - b) / b for a, b in pairs), "runs": len(pairs),
            }
    return rows


def median_of(runs, read):
    values = [v for v in (read(r) for r in runs if r) if v is not None]
    return statistics.median(values) if values else None


def side_figures(runs):
    first = next((r for r in runs if r), None)
    figures = {
        "first_event_ms": median_of(runs, lambda r: r["first_event_ms"]),
        "context_ms": median_of(runs, lambda r: r["context_ms"]),
        "rss_growth": median_of(runs, lambda r: r["memory_after"]["VmRSS"] - r["memory_before"]["VmRSS"]),
        "anon_growth": median_of(runs, lambda r: r["memory_after"]["RssAnon"] - r["memory_before"]["RssAnon"]),
        "tracer_mappings": median_of(runs, lambda r: r["memory_after"]["tracer_mappings"]),
        "events": median_of(runs, lambda r: r["events"]),
    }
    if first:
        figures["bytes_per_event"] = {p: v.get("bytes_per_event") for p, v in first["phases"].items()}
        figures["trace"] = first.get("trace")
    return figures


def show(summary):
    for phase, unit in PHASES:
        print("\n%-14s %10s %10s %12s %9s   (%s)" % (phase, "median", "min", "over bare", "percent", unit))
        for variant, row in summary["phases"][phase].items():
            print("%-14s %10.3f %10.3f %+12.3f %+8.2f%%" % (variant, row["median"], row["min"], row["over_bare"],
                                                            row["percent"]))
    print("\n%-14s %12s %12s %12s %12s %10s   bytes per event by phase" % (
        "", "1st event ms", "RSS + MiB", "anon + MiB", "tracer MiB", "events"))
    for variant, f in summary["side"].items():
        if f["events"] is None:
            continue
        sizes = " ".join("%.1f" % b for b in (f.get("bytes_per_event") or {}).values() if b is not None)
        print("%-14s %12.2f %12.1f %12.1f %12.1f %10d   %s" % (
            variant, f["first_event_ms"], f["rss_growth"] / 2**20, f["anon_growth"] / 2**20,
            f["tracer_mappings"] / 2**20, f["events"], sizes or "-"))
    for name, taken in summary["start_up_ms"].items():
        print("start-up without CUDA, %-10s bare %.3f ms  preloaded %.3f ms  (%+.3f)" % (
            name, taken["bare"], taken["full"], taken["full"] - taken["bare"]))


def main():
    preload = run.find_preload()
    variants = os.environ.get("VARIANTS", "bare,python,full,torch_python,torch_all").split(",")
    if preload is None:
        variants = [v for v in variants if v not in TRACED]
    folder = tempfile.mkdtemp(prefix="dstrace-cost-")
    summary = {"start_up_ms": {}}
    if preload:
        summary["start_up_ms"]["true"] = start_up(preload, folder, ["/bin/true"], 101)
        summary["start_up_ms"]["python"] = start_up(preload, folder, [sys.executable, "-c", "pass"], 21)
    results = rounds(variants, preload, folder)
    summary["phases"] = {phase: compare(results, phase) for phase, _ in PHASES}
    summary["side"] = {v: side_figures(runs) for v, runs in results.items()}
    show(summary)
    out = os.environ.get("OUT") or os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", "gpu-out")
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "capture_cost.json"), "w") as f:
        json.dump(dict(summary, preload=preload, runs=results), f)
    shutil.rmtree(folder, ignore_errors=True)
    return 0 if all(any(runs) for runs in results.values()) else 1


if __name__ == "__main__":
    os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1")
    sys.exit(main())
