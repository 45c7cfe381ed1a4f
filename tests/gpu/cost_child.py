# SPDX-License-Identifier: Apache-2.0
"""One run of capture_cost.py: measures itself under whatever recorder the environment asks for, prints COST {...}.

COST_RECORDER=python|all starts torch's own recorder; COST_DETAIL=1 also reads the trace for bytes per event.
"""

import glob
import json
import os
import statistics
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "workloads"))
from model import Decoder  # noqa: E402

import trace_stats  # noqa: E402

PAIRS = int(os.environ.get("COST_PAIRS", "10000"))
REPEATS = 7


def memory():
    """Resident bytes of the process by kind, and of the mappings that are the tracer's own."""
    result = {}
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith(("VmRSS", "VmHWM", "RssAnon", "RssFile", "RssShmem")):
                result[line.split(":")[0]] = int(line.split()[1]) * 1024
    tracer = counted = 0
    with open("/proc/self/smaps") as f:
        for line in f:
            words = line.split()
            if "-" in words[0] and ":" not in words[0]:
                counted = line.rstrip().endswith((".pb", "libdstrace.so", ".pb (deleted)"))
            elif counted and words[0] == "Rss:":
                tracer += int(words[1]) * 1024
    result["tracer_mappings"] = tracer
    return result


def at_depth(depth, action):
    return action() if depth <= 1 else at_depth(depth - 1, action)


def pair_loop():
    """Microseconds per tensor alloc+free pair, median of several loops."""
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter_ns()
        for _ in range(PAIRS):
            torch.empty(1024, device="cuda")
        times.append((time.perf_counter_ns() - begun) / PAIRS / 1000)
    return {"median": statistics.median(times), "min": min(times)}


def steps(model, optimizer, tokens, warm, timed):
    times = []
    for i in range(warm + timed):
        begun = time.perf_counter_ns()
        model(tokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if i >= warm:
            times.append((time.perf_counter_ns() - begun) / 1e6)
    return {"median": statistics.median(times), "min": min(times)}


def small():
    """Many small operations: the host is the bottleneck, as with a small model or a slow interpreter."""
    model = Decoder(4096, 512, 8, 8).cuda()
    return model, torch.optim.AdamW(model.parameters(), foreach=False), torch.randint(4096, (2, 64), device="cuda")


def small_step():
    return steps(*small(), 10, 40)


def bloom_1b():
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Decoder(250880, 1536, 24, 16)
    torch.set_default_dtype(torch.float32)
    return model, torch.optim.AdamW(model.parameters(), foreach=True)


def bloom_1b_step():
    """1 024 tokens: the host is still the slower side on a fast GPU."""
    return steps(*bloom_1b(), torch.randint(250880, (2, 512), device="cuda"), 3, 20)


def bloom_1b_long_step():
    """8 192 tokens, as a training of this size uses: the GPU is the slower side."""
    return steps(*bloom_1b(), torch.randint(250880, (8, 1024), device="cuda"), 3, 8)


def event_count():
    stats = torch.cuda.memory_stats()
    return stats["allocation.all.allocated"] + stats["allocation.all.freed"]


def committed():
    """Committed bytes of this process's trace, None without one."""
    pattern = os.environ.get("DSTRACE_OUTPUT", "").replace("%p", str(os.getpid())).replace("%r", "*")
    found = glob.glob(pattern) if "LD_PRELOAD" in os.environ and pattern else []
    return trace_stats.summarize(found[0])["committed"] if found else None


def main():
    begun = time.perf_counter_ns()
    torch.cuda.init()
    torch.cuda.synchronize()
    ready = time.perf_counter_ns()
    recorder = os.environ.get("COST_RECORDER")
    if recorder:
        torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks=recorder)
    result = {"context_ms": (ready - begun) / 1e6, "memory_before": memory()}
    begun = time.perf_counter_ns()
    torch.empty(1, device="cuda")
    result["first_event_ms"] = (time.perf_counter_ns() - begun) / 1e6
    torch.empty(1024, device="cuda")

    detail = os.environ.get("COST_DETAIL") == "1"
    phases = {}
    for name, action in (
            ("pair_depth_3", pair_loop), ("pair_depth_30", lambda: at_depth(26, pair_loop)),
            ("small_step", small_step), ("bloom_1b_step", bloom_1b_step),
            ("bloom_1b_long_step", bloom_1b_long_step)):
        if name in os.environ.get("COST_SKIP", "").split(","):
            continue
        events, size = event_count(), committed() if detail else None
        phases[name] = action()
        phases[name]["events"] = event_count() - events
        if size is not None:
            phases[name]["bytes_per_event"] = (committed() - size) / phases[name]["events"]
    result.update(phases=phases, events=event_count(), memory_after=memory(),
                  peak_reserved=torch.cuda.max_memory_reserved())
    os.write(1, ("COST %s\n" % json.dumps(result)).encode())


if __name__ == "__main__":
    main()
