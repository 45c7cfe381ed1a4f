# SPDX-License-Identifier: Apache-2.0
"""Counts what is in a trace with nothing but the standard library: chunks, committed bytes, records by kind.

Independent of the analyzer on purpose: it gives the capture benchmarks their bytes per event, and the tests a second
opinion on how many events were recorded.   python3 trace_stats.py FILE...
"""

import collections
import json
import os
import sys

RECORDS = {
    1: "tensor_alloc", 2: "tensor_free", 3: "device_event", 4: "memory_sample", 5: "stack", 6: "frame", 7: "module",
    8: "thread", 9: "torch_totals", 10: "out_of_memory", 11: "loss", 12: "header", 13: "string", 14: "gpu",
    15: "stream_event", 16: "property", 17: "mark", 18: "end", 19: "padding",
    20: "cupti_totals", 21: "checkpoint", 22: "live_tensor", 23: "live_event", 24: "live_sample", 25: "live_totals",
    26: "history",
}
CUPTI = {2: "version", 4: "pool_operations", 5: "correlated", 6: "dropped", 7: "unknown", 8: "stopped"}
CUPTI_KIND = {1: "kind", 2: "allocations", 3: "allocated_bytes", 4: "frees", 5: "freed_bytes"}


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data, at, end):
    """Yields (number, value or (start, stop), next) for each field of a protobuf message; stops where it is cut off."""
    while at < end:
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 1:
            value, at = int.from_bytes(data[at:at + 8], "little"), at + 8
        elif wire == 5:
            value, at = int.from_bytes(data[at:at + 4], "little"), at + 4
        elif wire == 2:
            size, at = _varint(data, at)
            value, at = (at, at + size), at + size
        else:
            raise ValueError("wire type %d at byte %d" % (wire, at))
        if at > end:
            return
        yield number, value, at


def _cupti(data, span):
    totals = {"kinds": []}
    for number, value, _ in fields(data, *span):
        if number == 3:
            totals["kinds"].append({CUPTI_KIND.get(n, n): v for n, v, _ in fields(data, *value)})
        elif number in CUPTI:
            totals[CUPTI[number]] = value
    return totals


def _chunk(data, start, stop, counts, sizes, result):
    committed, payload = 0, None
    for number, value, _ in fields(data, start, stop):
        if number == 16:
            committed = value
        elif number == 6:
            payload = value
    if payload is None:
        return 0
    before = payload[0]
    for number, value, after in fields(data, payload[0], payload[0] + committed):
        kind = RECORDS.get(number, "field_%d" % number)
        if kind == "cupti_totals":
            result["cupti"] = _cupti(data, value)  # the last one stands
        counts[kind] += 1
        sizes[kind] += after - before
        before = after
    return committed


def summarize(path):
    """Sizes and counts of a trace; `error` says why where it cannot be read to its end."""
    with open(path, "rb") as f:
        data = f.read()
    counts, sizes = collections.Counter(), collections.Counter()
    result = {"size": len(data), "blocks": os.stat(path).st_blocks * 512, "chunks": 0, "committed": 0}
    try:
        for number, value, _ in fields(data, 0, len(data)):
            if number == 1:
                result["chunks"] += 1
                result["committed"] += _chunk(data, value[0], value[1], counts, sizes, result)
    except (ValueError, IndexError) as error:
        result["error"] = str(error)
    return dict(result, counts=dict(counts), bytes=dict(sizes))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps(dict(summarize(name), file=name), sort_keys=True))
