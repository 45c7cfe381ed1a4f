# SPDX-License-Identifier: Apache-2.0
"""Runs the workloads of suite.py, each with its own limit, and packs traces and logs. Started by run.sh.

Where several GPUs are present, workloads of one GPU run side by side, one on each (LANES=1: one after the other). A
time limit ends the whole process group of the workload. Results under $OUT: table.txt, results.json, logs.tar.gz,
traces.tar.{zst,xz,gz}.NN.
"""

import concurrent.futures
import glob
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

import suite
import trace_stats

MIB = 1 << 20
PART_BYTES = 15 * MIB
TRACE_PARTS = 4  # 60 MiB of traces; the rest of the room is for the other files


def find_preload():
    given = os.environ.get("PRELOAD", "")
    if given == "none":
        return None
    found = [given] if given else sorted(
        glob.glob("build/**/libdstrace.so", recursive=True) + glob.glob(".gpu/lib/libdstrace.so"), key=os.path.getmtime)
    if not found or not os.path.exists(found[-1]):
        raise SystemExit("no libdstrace.so: build it, or set PRELOAD (PRELOAD=none runs without)")
    return os.path.abspath(found[-1])


def gpu_count():
    if not shutil.which("nvidia-smi"):
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def environment(workload, preload, gpus, folder):
    env = dict(os.environ)
    env.pop("LD_PRELOAD", None)
    env.update(workload.env)
    env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    env["PYTHONPATH"] = os.pathsep.join(workload.path + tuple(filter(None, [env.get("PYTHONPATH")])))
    if preload and workload.preload:
        env["LD_PRELOAD"] = preload
        env["DSTRACE_OUTPUT"] = os.path.join(folder, workload.name + "-%r-%p.pb")
    return env


def stop(process):
    """SIGTERM first: torchrun puts its ranks into sessions of their own and ends them only when asked to."""
    for number, patience in ((signal.SIGTERM, 6), (signal.SIGKILL, 20)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def run_one(workload, preload, gpus, folder, limit):
    """Runs one workload to its end or its limit; returns its row of the results."""
    begun = time.monotonic()
    log = os.path.join(folder, "logs", workload.name)
    with open(log + ".out", "wb") as out, open(log + ".err", "wb") as err:
        process = subprocess.Popen(workload.argv, env=environment(workload, preload, gpus, folder), stdout=out,
                                   stderr=err, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status = process.wait(min(workload.timeout, limit))
        except subprocess.TimeoutExpired:
            status = "timeout"
            stop(process)
    return describe(workload, status, time.monotonic() - begun, folder)


def read_lines(path, word):
    with open(path, errors="replace") as f:
        for line in f:
            if line.startswith(word + " "):
                try:
                    yield json.loads(line[len(word) + 1:])
                except ValueError:
                    continue


def describe(workload, status, seconds, folder):
    log = os.path.join(folder, "logs", workload.name)
    points = list(read_lines(log + ".out", "CHECKPOINT"))
    traces = sorted(glob.glob(os.path.join(glob.escape(folder), workload.name + "-*.pb")))
    stderr = open(log + ".err", errors="replace").read()
    ended_well = (status == workload.status and workload.says in stderr and bool(points)
                  and (not workload.reaches or any(p["step"] == workload.reaches for p in points)))
    held = [dict(trace_stats.summarize(t), file=os.path.basename(t)) for t in traces]
    if os.environ.get("PRELOAD") != "none":
        ended_well = ended_well and all(any(t["counts"].get(kind) for t in held) for kind in workload.records)
    return {
        "name": workload.name, "status": status, "expected": workload.status, "ok": ended_well,
        "seconds": round(seconds, 1), "checkpoints": points, "notes": list(read_lines(log + ".out", "NOTE")),
        "profile": next(read_lines(log + ".out", "PROFILE"), None),
        "traces": held,
        "stderr_tail": "" if ended_well else stderr[-1500:] or "(stderr is empty)",
    }


def run_all(workloads, preload, gpus_present, folder, budget):
    """Fills the GPUs: two one-GPU workloads run side by side on two GPUs, those of several GPUs run alone."""
    deadline = time.monotonic() + budget
    rows, lock = [], threading.Lock()
    free = queue.Queue()

    def job(workload, gpus):
        left = deadline - time.monotonic()
        if left < 15:
            row = {"name": workload.name, "status": "skipped", "ok": False, "seconds": 0, "checkpoints": [],
                   "traces": [], "notes": [], "profile": None, "stderr_tail": "no time left in the budget"}
        else:
            row = run_one(workload, preload, gpus, folder, left)
        with lock:
            rows.append(row)
            print("%-26s %-8s %5.1f s" % (row["name"], row["status"], row["seconds"]), flush=True)

    def on_any_gpu(workload):
        gpu = free.get()
        try:
            job(workload, [gpu])
        finally:
            free.put(gpu)

    for several in [w for w in workloads if w.gpus > 1]:
        job(several, list(range(several.gpus)))
    lanes = 1 if os.environ.get("LANES") == "1" else max(1, gpus_present)
    for gpu in range(lanes):
        free.put(gpu)
    with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
        list(pool.map(on_any_gpu, [w for w in workloads if w.gpus == 1]))
    return rows


def mib(value):
    return "%.1f" % (value / MIB) if isinstance(value, (int, float)) else "-"


def table(rows):
    lines = ["%-26s %-8s %6s %6s %9s %9s | %9s %9s %9s %9s %9s   MiB" % (
        "workload", "status", "s", "traces", "committed", "on disk",
        "alloc", "reserved", "peak al", "peak res", "used")]
    for row in rows:
        points = [p for p in row["checkpoints"] if p.get("rank", 0) == 0]
        last = points[-1] if points else {}
        device = (last.get("devices") or [{}])[0]
        used = device.get("used", last.get("driver_used"))
        lines.append("%-26s %-8s %6.1f %6d %9d %9d | %9s %9s %9s %9s %9s   at %s%s" % (
            row["name"], row["status"], row["seconds"], len(row["traces"]),
            sum(t["committed"] for t in row["traces"]), sum(t["size"] for t in row["traces"]),
            mib(device.get("allocated")), mib(device.get("reserved")), mib(device.get("peak_allocated")),
            mib(device.get("peak_reserved")), mib(used), last.get("step", "-"), "" if row["ok"] else "   <-- NOT OK"))
    profiles = {r["name"]: r["profile"] for r in rows if r.get("profile")}
    bare = profiles.pop("profiler_bare", None)
    for name, traced in sorted(profiles.items()) if bare else ():
        keys = ("kernel", "memcpy", "memset", "memory", "memory_bytes", "kernel_names")
        same = all(bare[k] == traced[k] for k in keys)
        lines.append("torch.profiler, bare against %s: %s  %s" % (
            name, "same" if same else "DIFFERENT", " ".join("%s %d/%d" % (k, bare[k], traced[k]) for k in keys)))
    for row in rows:
        for trace in row["traces"]:
            if "cupti" in trace:
                lines.append("CUPTI in %s: %s" % (trace["file"], json.dumps(trace["cupti"], sort_keys=True)))
    return "\n".join(lines)


def compressor():
    for program, options in (("zstd", ["-q", "-T0", "-6", "-c"]), ("xz", ["-T0", "-2", "-c"]), ("gzip", ["-c"])):
        if shutil.which(program):
            return {"zstd": "zst", "xz": "xz", "gzip": "gz"}[program], [program] + options
    raise SystemExit("no compressor")


def pack(folder, out):
    """Logs in one archive, traces in one that is cut into parts; the largest traces are left out if need be."""
    with tarfile.open(os.path.join(out, "logs.tar.gz"), "w:gz") as archive:
        archive.add(os.path.join(folder, "logs"), "logs")
    traces = sorted(glob.glob(os.path.join(glob.escape(folder), "*.pb")), key=os.path.getsize)
    suffix, command = compressor()
    left_out = []
    while traces:
        whole = os.path.join(folder, "traces.tar." + suffix)
        with open(whole, "wb") as sink:
            packer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sink)
            with tarfile.open(fileobj=packer.stdin, mode="w|") as archive:
                for path in traces:
                    archive.add(path, os.path.basename(path))
            packer.stdin.close()
            packer.wait()
        if os.path.getsize(whole) <= TRACE_PARTS * PART_BYTES:
            with open(whole, "rb") as source:
                for part in iter(lambda: source.read(PART_BYTES), b""):
                    name = "traces.tar.%s.%02d" % (suffix, len(glob.glob(os.path.join(out, "traces.tar.*"))))
                    with open(os.path.join(out, name), "wb") as piece:
                        piece.write(part)
            break
        left_out.append(os.path.basename(traces.pop()))
    return left_out


def main():
    preload = find_preload()
    gpus_present = int(os.environ.get("GPUS") or gpu_count())
    workloads, too_large, absent = suite.select(sys.argv[1:], gpus_present)
    out = os.environ.get("OUT") or os.path.join(suite.ROOT, "build", "gpu-out")
    os.makedirs(out, exist_ok=True)
    for old in glob.glob(os.path.join(glob.escape(out), "traces.tar.*")):
        os.unlink(old)
    folder = tempfile.mkdtemp(prefix="dstrace-gpu-")
    os.mkdir(os.path.join(folder, "logs"))
    print("preload %s, %d GPUs, %d workloads, work in %s" % (preload, gpus_present, len(workloads), folder), flush=True)

    rows = run_all(workloads, preload, gpus_present, folder, float(os.environ.get("BUDGET", "540")))
    text = table(rows)
    if too_large:
        text += "\nneed more GPUs: " + " ".join(w.name for w in too_large)
    for workload in absent:
        text += "\nnot run, since there is no %s: %s" % (workload.needs, workload.name)
    left_out = pack(folder, out)
    if left_out:
        text += "\ntraces too large to bring back: " + " ".join(left_out)
    for row in rows:
        if row["stderr_tail"]:
            text += "\n--- %s, end of stderr\n%s" % (row["name"], row["stderr_tail"][-700:])
    with open(os.path.join(out, "table.txt"), "w") as f:
        f.write(text + "\n")
    with open(os.path.join(out, "results.json"), "w") as f:
        json.dump({"preload": preload, "gpus": gpus_present, "rows": rows}, f)
    print(text)
    shutil.rmtree(folder, ignore_errors=True)
    failed = [r["name"] for r in rows if not r["ok"]]
    print("%d passed, %d failed" % (len(rows) - len(failed), len(failed)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
