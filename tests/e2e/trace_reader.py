# SPDX-License-Identifier: Apache-2.0
"""Reads a dstrace log with nothing but the format's description.

It shares no code with the writer or the analyzer, so that the three agree by
the contract (proto/trace.proto, proto/FORMAT.md) and not by accident.

    trace = read_trace("run.pb")
    trace.header["pid"], trace.events[0]["size"], trace.names(event["stack"])
"""
import struct

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class FormatError(Exception):
    """The file is not what FORMAT.md says it is."""


def varint(data, at, end):
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise FormatError("truncated varint at byte %d" % at)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def zigzag(value):
    return (value >> 1) ^ -(value & 1)


def fields(data, at, end):
    """Yields (number, wire type, value); BYTES as a (start, end) pair."""
    while at < end:
        key, at = varint(data, at, end)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = varint(data, at, end)
        elif wire == FIXED32:
            value, at = struct.unpack_from("<I", data, at)[0], at + 4
        elif wire == FIXED64:
            value, at = struct.unpack_from("<Q", data, at)[0], at + 8
        elif wire == BYTES:
            size, at = varint(data, at, end)
            value, at = (at, at + size), at + size
        else:
            raise FormatError("wire type %d at byte %d" % (wire, at))
        if at > end:
            raise FormatError("field %d ends at %d, after %d" % (number, at, end))
        yield number, wire, value


# field number -> (name, kind); kinds: u unsigned, s zigzag, b bytes, t text,
# * in front: repeated.
DEVICE_EVENT = {
    1: ("time", "u"), 2: ("kind", "u"), 3: ("api", "u"), 4: ("address", "u"),
    5: ("size", "u"), 6: ("stack", "u"), 7: ("device", "s"), 8: ("handle", "u"),
    9: ("stream", "u"), 10: ("pool", "u"), 11: ("offset", "u"), 12: ("flags", "u"),
    13: ("result", "s"), 14: ("label", "u"), 15: ("free_bytes", "u"),
    16: ("total_bytes", "u"),
}
MESSAGES = {
    "memory_sample": {1: ("time", "u"), 2: ("device", "s"), 3: ("free_bytes", "u"),
                      4: ("total_bytes", "u"), 5: ("reason", "u")},
    "stack": {1: ("id", "u"), 2: ("frame", "*u"), 3: ("truncated", "u")},
    "frame": {1: ("id", "u"), 2: ("kind", "u"), 3: ("pc", "u"), 4: ("module", "u"),
              5: ("name", "u"), 6: ("name_offset", "u"), 7: ("file", "u"),
              8: ("line", "u"), 9: ("first_line", "u")},
    "module": {1: ("id", "u"), 2: ("path", "u"), 3: ("base", "u"), 4: ("size", "u"),
               5: ("build_id", "b")},
    "thread": {1: ("tid", "u"), 2: ("name", "t")},
    "torch_totals": {1: ("time", "u"), 2: ("device", "u"), 3: ("allocated", "u"),
                     4: ("reserved", "u")},
    "out_of_memory": {1: ("time", "u"), 2: ("device", "u"), 3: ("size", "u"),
                      4: ("allocated", "u"), 5: ("reserved", "u"), 6: ("stack", "u")},
    "loss": {1: ("cause", "u"), 2: ("count", "u"), 3: ("detail", "t")},
    "header": {1: ("format_version", "u"), 2: ("dstrace_version", "t"), 3: ("pid", "u"),
               4: ("parent_pid", "u"), 5: ("host", "t"), 6: ("command", "*t"),
               7: ("executable", "t"), 8: ("environment", "*b"),
               9: ("monotonic_time", "u"), 10: ("real_time", "u"), 11: ("stacks", "t"),
               12: ("crash_proof", "u")},
    "string": {1: ("id", "u"), 2: ("value", "t")},
    "gpu": {1: ("index", "u"), 2: ("name", "t"), 3: ("uuid", "t"), 4: ("total_bytes", "u")},
    "property": {1: ("name", "t"), 2: ("value", "t")},
    "mark": {1: ("time", "u"), 2: ("kind", "u"), 3: ("name", "u"), 4: ("domain", "u")},
    "cupti_totals": {1: ("time", "u"), 2: ("version", "u"), 3: ("kind", "*b"),
                     4: ("pool_operations", "u"), 5: ("correlated", "u"), 6: ("dropped", "u"),
                     7: ("unknown", "u"), 8: ("stopped", "u")},
    "end": {1: ("time", "u"), 2: ("kind", "u"), 3: ("status", "s")},
    "device_event": DEVICE_EVENT,
}
RECORDS = {3: "device_event", 4: "memory_sample", 5: "stack", 6: "frame", 7: "module",
           8: "thread", 9: "torch_totals", 10: "out_of_memory", 11: "loss", 12: "header",
           13: "string", 14: "gpu", 16: "property", 17: "mark", 18: "end",
           20: "cupti_totals"}
DICTIONARY_SLOTS = 4096
TENSOR_ALLOC, TENSOR_FREE, STREAM_EVENT = 1, 2, 15


def empty(schema):
    defaults = {"u": 0, "s": 0, "t": "", "b": b""}
    return {name: [] if kind[0] == "*" else defaults[kind] for name, kind in schema.values()}


def convert(data, kind, value):
    if kind == "s":
        return zigzag(value)
    if kind in ("t", "b"):
        raw = bytes(data[value[0]:value[1]])
        return raw.decode("utf-8", "replace") if kind == "t" else raw
    return value


def decode(data, start, end, schema):
    message = empty(schema)
    for number, wire, value in fields(data, start, end):
        if number not in schema:
            continue
        name, kind = schema[number]
        if kind == "*u" and wire == BYTES:  # packed
            at = value[0]
            while at < value[1]:
                item, at = varint(data, at, value[1])
                message[name].append(item)
        elif kind[0] == "*":
            message[name].append(convert(data, kind[1:], value))
        else:
            message[name] = convert(data, kind, value)
    return message


class Trace:
    def __init__(self):
        self.chunks = []          # {"committed", "thread", "sequence", ...}
        self.header = None
        self.events = []          # device events with "thread" and absolute "time"
        self.tensors = []         # {"kind", "time", "thread", "stack", "address", ...}
        self.samples, self.totals, self.ooms = [], [], []
        self.losses, self.gpus, self.marks, self.ends = [], [], [], []
        self.cupti = []           # totals, in order
        self.threads = set()
        self.properties = {}
        self.strings, self.stacks, self.frames, self.modules = {0: ""}, {}, {}, {}
        self.size = 0             # of the file, bytes

    def text(self, string_id):
        return self.strings[string_id]

    def frames_of(self, stack_id):
        """Innermost first; KeyError if a definition is missing."""
        return [self.frames[frame] for frame in self.stacks[stack_id]["frame"]] if stack_id else []

    def python_names(self, stack_id):
        """Names without their qualification: 3.8 to 3.10 know no other."""
        return [self.text(frame["name"]).rsplit(".", 1)[-1]
                for frame in self.frames_of(stack_id) if frame["kind"] == 1]

    def names(self, stack_id):
        return [self.text(frame["name"]) for frame in self.frames_of(stack_id)]

    def api(self, event):
        return self.text(event["api"])

    def allocations(self):
        return [event for event in self.events if event["kind"] in (1, 3, 4)]


class ChunkReader:
    """Decodes one chunk into a Trace."""

    def __init__(self, trace, data, chunk):
        self.trace, self.data, self.chunk = trace, data, chunk
        self.time = chunk["first_time"]
        self.thread = chunk["thread"]
        self.blocks = []         # named in full so far, first mentioned first
        self.last_address = 0    # of the last block named in full
        self.last_device = 0

    def tick(self, message):
        self.time += message["time"]
        message["time"] = self.time

    def read(self):
        start = self.chunk["payload"][0]
        end = start + self.chunk["committed"]
        if end > self.chunk["payload"][1]:
            raise FormatError("chunk %d commits %d bytes, more than it has" %
                              (self.chunk["sequence"], self.chunk["committed"]))
        for number, wire, value in fields(self.data, start, end):
            if wire != BYTES:
                raise FormatError("record %d has wire type %d" % (number, wire))
            if number in (TENSOR_ALLOC, TENSOR_FREE, STREAM_EVENT):
                self.add_tuple(number, value)
            elif number in RECORDS:
                name = RECORDS[number]
                self.add(name, decode(self.data, value[0], value[1], MESSAGES[name]))

        self.read_recent()

    def read_recent(self):
        """The tensors that the payload has not taken over: one row of slots."""
        row = []
        for at in range(self.chunk["recent"][0], self.chunk["recent"][1], 32):
            slot = struct.unpack_from("<QQqIHH", self.data, at)
            if slot[5] == self.chunk["committed"] + 1:
                row.append(slot)
            elif row:
                break
        for time, address, size, stack, device, _ in row:
            self.time = max(self.time, time)
            self.add_tensor(size > 0, stack if size > 0 else 0, (address, abs(size), device))

    def add_tensor(self, is_alloc, stack, block):
        address, size, device = block
        self.trace.tensors.append({
            "kind": "alloc" if is_alloc else "free", "time": self.time, "thread": self.thread,
            "stack": stack, "address": address, "size": size, "device": device})

    def add_tuple(self, number, span):
        at, values = span[0], []
        while at < span[1]:
            value, at = varint(self.data, at, span[1])
            values.append(value)
        self.time += values[0]
        if number == STREAM_EVENT:
            return
        is_alloc = number == TENSOR_ALLOC
        block = self.block(values[2:] if is_alloc else values[1:])
        self.add_tensor(is_alloc, values[1] if is_alloc else 0, block)

    def block(self, values):
        """A slot of the chunk's dictionary, or a block named in full."""
        if values[0] != 0:
            return self.blocks[values[0] - 1]
        is_short = len(values) == 3
        unit = 512 if is_short else 1
        self.last_address = (self.last_address + zigzag(values[1]) * unit) & (1 << 64) - 1
        if not is_short:
            self.last_device = values[3]
        block = (self.last_address, values[2] * unit, self.last_device)
        if len(self.blocks) < DICTIONARY_SLOTS:
            self.blocks.append(block)
        return block

    def add(self, name, message):
        trace = self.trace
        if "time" in message:
            self.tick(message)
        message["thread"] = self.thread
        if name == "thread":
            self.thread = message["tid"]
            trace.threads.add(self.thread)
        elif name == "header":
            if trace.header is None:
                trace.header = message
        elif name == "string":
            trace.strings[message["id"]] = message["value"]
        elif name == "property":
            trace.properties[message["name"]] = message["value"]
        elif name in ("stack", "frame", "module"):
            getattr(trace, name + "s")[message["id"]] = message
        else:
            lists = {"device_event": trace.events, "memory_sample": trace.samples,
                     "torch_totals": trace.totals, "out_of_memory": trace.ooms,
                     "loss": trace.losses, "gpu": trace.gpus, "mark": trace.marks,
                     "end": trace.ends, "cupti_totals": trace.cupti}
            lists[name].append(message)


def read_chunk(data, start, end):
    chunk = {"committed": 0, "thread": 0, "sequence": 0, "first_time": 0, "last_time": 0,
             "payload": (start, start), "recent": (start, start)}
    names = {16: "committed", 2: "thread", 3: "sequence", 4: "first_time", 5: "last_time",
             6: "payload", 17: "recent"}
    for number, _, value in fields(data, start, end):
        if number in names:
            chunk[names[number]] = value
    return chunk


def read_trace(path):
    with open(path, "rb") as file:
        data = file.read()
    trace = Trace()
    trace.size = len(data)
    for number, wire, value in fields(data, 0, len(data)):
        if number == 1:
            trace.chunks.append(read_chunk(data, *value))
        elif number != 15 or wire != BYTES:
            raise FormatError("field %d at the top" % number)
    longest = {}  # a chunk that was being moved when the program ended is there twice
    for chunk in trace.chunks:
        known = longest.get(chunk["sequence"])
        if known is None or known["committed"] < chunk["committed"]:
            longest[chunk["sequence"]] = chunk
    trace.chunks = [longest[sequence] for sequence in sorted(longest)]
    for chunk in trace.chunks:
        ChunkReader(trace, data, chunk).read()
    return trace
