# SPDX-License-Identifier: Apache-2.0
"""Captures stacks inside running Python and compares them with Python's own.

usage: DSTRACE_STACKS_PROBE=LIBRARY python_stacks_test.py [unittest arguments]
"""
import asyncio
import ctypes
import functools
import gc
import json
import os
import subprocess
import sys
import threading
import traceback
import types
import unittest

LIBRARY = os.environ["DSTRACE_STACKS_PROBE"]


class Result(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int)
                for n in ("native", "python", "merged", "truncated", "loops", "runs")]


SIZE = 4 << 20
WITHOUT_GIL = ctypes.CDLL(LIBRARY)  # ctypes gives the GIL up around the call
WITH_GIL = ctypes.PyDLL(LIBRARY)
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
for _library in (WITHOUT_GIL, WITH_GIL):
    _library.probe_version.restype = ctypes.c_uint
    _library.probe_fingerprint.restype = ctypes.c_ulonglong

with open("/proc/self/maps") as _maps:
    ADDRESSES_REST = "libasan" in _maps.read()  # freed memory is not reused for a while


def name_of(code):
    return getattr(code, "co_qualname", code.co_name)


def own_frames():
    """(qualified name, file, line) of the callers, innermost first."""
    frame = sys._getframe(1)
    frames = []
    while frame is not None:
        frames.append((name_of(frame.f_code), frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return frames


class Snapshot:
    """What the probe saw and what Python says, taken on one line."""

    def __init__(self, library=WITHOUT_GIL, maximum=4096):
        buffer = ctypes.create_string_buffer(SIZE)
        self.result = result = Result()
        capture = library.probe_capture
        _, self.own, self.traceback = capture(buffer, SIZE, maximum, ctypes.byref(result)), own_frames(), traceback.extract_stack()  # noqa: one line on purpose
        self.frames = [json.loads(line) for line in buffer.value.decode("utf-8").splitlines()]
        self.python = [(f["name"], f["file"], f["line"]) for f in self.frames
                       if f["kind"] == "python"]

    def names(self):
        return [f["name"] for f in self.frames]


class StacksTest(unittest.TestCase):
    maxDiff = 4000

    def tearDown(self):
        self.assertEqual(WITHOUT_GIL.probe_chain_errors(), 0)

    def check(self, snapshot):
        self.assertEqual(WITHOUT_GIL.probe_status(), 2)
        self.assertEqual(snapshot.python, snapshot.own)
        for (name, file, line), entry in zip(snapshot.python, reversed(snapshot.traceback)):
            self.assertEqual((name.split(".")[-1], file, line),
                             (entry.name, entry.filename, entry.lineno))
        self.assertEqual(len(snapshot.python), len(snapshot.traceback))
        self.assertEqual(snapshot.result.truncated, 0)
        if self.native_stack_is_complete(snapshot):
            self.assertEqual(snapshot.result.loops, snapshot.result.runs)

    @staticmethod
    def native_stack_is_complete(snapshot):
        return snapshot.result.native < 4096

    def check_both(self, take):
        """take(library) returns a Snapshot taken somewhere deep."""
        for library in (WITHOUT_GIL, WITH_GIL):
            self.check(take(library))

    # -- shapes of code ---------------------------------------------------

    def test_plain_nesting(self):
        def outer(library):
            return middle(library)

        def middle(library):
            value = [inner(library)
                     for _ in range(1)]
            return value[0]

        def inner(library):
            return Snapshot(
                library)

        self.check_both(outer)

    def test_version_is_the_interpreters(self):
        Snapshot()
        self.assertEqual(WITHOUT_GIL.probe_version() >> 8, sys.hexversion >> 8)

    def test_recursion(self):
        def recurse(depth, library):
            if depth == 0:
                return Snapshot(library)
            return recurse(depth - 1, library)

        snapshot = recurse(200, WITHOUT_GIL)
        self.check(snapshot)
        self.assertEqual(sum("recurse" in name for name, _, _ in snapshot.python), 201)

    def test_deep_recursion_is_whole(self):
        sys.setrecursionlimit(3000)

        def recurse(depth):
            return Snapshot() if depth == 0 else recurse(depth - 1)

        self.check(recurse(1000))

    def test_deep_recursion_is_cut_and_marked(self):
        sys.setrecursionlimit(3000)

        def recurse(depth):
            return Snapshot(maximum=128) if depth == 0 else recurse(depth - 1)

        snapshot = recurse(1000)
        self.assertEqual(snapshot.result.python, 128)
        self.assertEqual(snapshot.result.truncated, 1)
        self.assertEqual(snapshot.python, snapshot.own[:128])

    def test_exactly_full_is_not_truncated(self):
        depth = len(own_frames()) + 1  # and Snapshot.__init__
        snapshot = Snapshot(maximum=depth)
        self.assertEqual((snapshot.result.python, snapshot.result.truncated), (depth, 0))
        snapshot = Snapshot(maximum=depth - 1)
        self.assertEqual((snapshot.result.python, snapshot.result.truncated), (depth - 1, 1))

    def test_generators(self):
        def leaf(library):
            yield Snapshot(library)

        def delegate(library):
            yield from leaf(library)

        def chain(library):
            for item in delegate(library):
                yield item

        self.check_both(lambda library: next(chain(library)))
        self.check_both(lambda library: list(chain(library))[0])

    def test_generator_sent_and_thrown_into(self):
        def worker(library):
            try:
                yield
            except KeyError:
                yield Snapshot(library)

        def thrown(library):
            generator = worker(library)
            next(generator)
            return generator.throw(KeyError("x"))

        self.check_both(thrown)

    def test_async(self):
        async def leaf(library):
            await asyncio.sleep(0)
            return Snapshot(library)

        async def gather(library):
            return (await asyncio.gather(leaf(library), leaf(library)))[1]

        async def managed(library):
            async with Manager() as manager:
                async for item in manager.items(library):
                    return item

        class Manager:
            async def __aenter__(self):
                return self

            async def __aexit__(self, *_):
                return False

            async def items(self, library):
                yield await leaf(library)

        self.check_both(lambda library: asyncio.run(leaf(library)))
        self.check_both(lambda library: asyncio.run(gather(library)))
        self.check_both(lambda library: asyncio.run(managed(library)))

    def test_comprehensions(self):
        self.check_both(lambda library: [Snapshot(library) for _ in range(2)][1])
        self.check_both(lambda library: {1: Snapshot(library) for _ in range(1)}[1])
        self.check_both(lambda library: next(Snapshot(library) for _ in range(1)))
        self.check_both(lambda library: [[Snapshot(library) for _ in "a"] for _ in "b"][0][0])

    def test_lambdas_and_partials(self):
        take = lambda library: (lambda: (lambda: Snapshot(library))())()  # noqa: E731
        self.check_both(take)
        self.check_both(functools.partial(lambda _, library: Snapshot(library), None))

    def test_classes(self):
        class Base:
            def __init__(self, library):
                self.snapshot = self.take(library)

            def take(self, library):
                raise NotImplementedError

        class Derived(Base):
            def take(self, library):
                return self.twice(library)

            @staticmethod
            def twice(library):
                return Derived.thrice(library)

            @classmethod
            def thrice(cls, library):
                return Snapshot(library)

        class Property:
            @property
            def value(self):
                return Snapshot()

            def __getattr__(self, name):
                return Snapshot()

            def __call__(self):
                return Snapshot()

            def __add__(self, other):
                return Snapshot()

            def __enter__(self):
                return Snapshot()

            def __exit__(self, *_):
                return None

        self.check_both(lambda library: Derived(library).snapshot)
        self.check(Property().value)
        self.check(Property().unknown)
        self.check(Property()())
        self.check(Property() + 1)
        with Property() as snapshot:
            self.check(snapshot)

    def test_class_body(self):
        class Body:
            snapshot = Snapshot()

        self.check(Body.snapshot)

    def test_decorators_and_wrappers(self):
        def decorate(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return function(*args, **kwargs)
            return wrapper

        @decorate
        @decorate
        def take(library):
            return Snapshot(library)

        self.check_both(take)

    def test_exception_handlers_and_finally(self):
        def take(library):
            try:
                raise ValueError("x")
            except ValueError:
                try:
                    return Snapshot(library)
                finally:
                    self.later = Snapshot(library)

        self.check_both(take)
        self.check(self.later)

    def test_long_functions_and_line_jumps(self):
        # Lines far apart, backwards jumps, more than 255 bytes of code on one line.
        big = "+".join(["len('x')"] * 200)
        source = "def f():\n" + "\n" * 300 + "    x = (" + big + ")\n" + "\n" * 5000
        source += "    return (x,\n\n\n      take(),\n  x)[1]\n"
        space = {"take": Snapshot}
        exec(compile(source, "long.py", "exec"), space)
        self.check(space["f"]())

    # -- exec'd code ------------------------------------------------------

    def test_executed_code(self):
        space = {"take": Snapshot}
        exec("def f():\n\n  return take()\nvalue = f()", space)
        self.check(space["value"])
        self.check(eval("take()", {"take": Snapshot}))

    def test_names_and_files_that_are_not_ascii(self):
        for name, file in (("f\u00fcnf", "gr\u00f6\u00dfe.py"), ("\u4e94", "\u6587\u4ef6/\u540d.py"),
                           ("\U00020000x", "\U0001f40d.py")):
            space = {"take": Snapshot}
            exec(compile("def %s():\n  return take()\nvalue = %s()" % (name, name), file, "exec"),
                 space)
            self.check(space["value"])
            self.assertIn((name, file, 2), space["value"].python)

    def test_long_names_are_cut_at_a_character(self):
        name = "\u00e9" * 300
        space = {"take": Snapshot}
        exec(compile("def %s():\n  return take()\nvalue = %s()" % (name, name), "\u00e9" * 600, "exec"),
             space)
        _, found, file, line = [(f["kind"], f["name"], f["file"], f["line"])
                                for f in space["value"].frames if f["name"].startswith("\u00e9")][0]
        self.assertEqual((found, file, line), (name[:127], "\u00e9" * 255, 2))

    def test_reused_code_addresses_get_new_fingerprints(self):
        code = ctypes.c_ulonglong()
        space = {"probe": WITHOUT_GIL.probe_fingerprint, "code": ctypes.byref(code)}
        seen = {}
        reused = 0
        for i in range(3000):
            space.pop("f", None)
            exec("def f():\n  return probe(code)" if i % 2 else
                 "def f():\n  x = 1\n  return probe(code)", space)
            print_now = space["f"]()
            if sys.version_info >= (3, 12):
                # Each code object is another one, also with the same text.
                self.assertNotEqual(seen.get(code.value), print_now)
            elif seen.get(code.value, (None, None))[1] not in (None, i % 2):
                self.assertNotEqual(seen[code.value][0], print_now)
            reused += code.value in seen
            seen[code.value] = print_now if sys.version_info >= (3, 12) else (print_now, i % 2)
        if not ADDRESSES_REST:
            self.assertGreater(reused, 100)

    def test_fingerprint_is_stable_while_the_code_lives(self):
        def take():
            code = ctypes.c_ulonglong()
            return WITHOUT_GIL.probe_fingerprint(ctypes.byref(code)), code.value

        self.assertEqual(len({take() for _ in range(5000)}), 1)

    # -- C in between -----------------------------------------------------

    def test_callbacks_from_builtins(self):
        self.check_both(lambda library: functools.reduce(lambda a, b: Snapshot(library), [1, 2]))
        self.check_both(lambda library: next(iter(map(lambda _: Snapshot(library), [1]))))
        kept = []
        sorted([2, 1], key=lambda x: kept.append(Snapshot()) or x)
        self.check(kept[-1])
        max([1, 2], key=lambda x: kept.append(Snapshot()) or x)
        self.check(kept[-1])

    def test_ctypes_callbacks_keep_their_native_frames_in_place(self):
        kept = []

        @CALLBACK
        def innermost(x):
            kept.append(Snapshot())
            return x

        @CALLBACK
        def middle(x):
            return helper(x)

        def helper(x):
            return WITHOUT_GIL.probe_call(innermost, x)

        def outer():
            return WITH_GIL.probe_call(middle, 5)

        self.assertEqual(outer(), 7)
        snapshot = kept[0]
        self.check(snapshot)
        names = [n.split(".")[-1] for n in snapshot.names()]
        order = [n for n in names if n in ("innermost", "middle", "helper", "outer", "probe_call")]
        self.assertEqual(order, ["innermost", "probe_call", "helper", "middle", "probe_call", "outer"])

    def test_mixed_recursion(self):
        def descend(depth):
            if depth == 0:
                return Snapshot()
            if depth % 3 == 0:
                return functools.reduce(lambda a, b: descend(depth - 1), [1, 2])
            if depth % 3 == 1:
                return next(descend(depth - 1) for _ in range(1))
            return descend(depth - 1)

        self.check(descend(60))

    def test_interpreter_frames_are_left_out(self):
        snapshot = Snapshot()
        for frame in snapshot.frames:
            if frame["kind"] == "native":
                self.assertFalse(frame["name"].startswith(("_PyEval", "PyObject_", "Py_", "_PyObject")),
                                 frame)

    def test_python_only_needs_no_unwinding(self):
        buffer = ctypes.create_string_buffer(SIZE)
        capture = WITHOUT_GIL.probe_capture_python_only
        _, own = capture(buffer, SIZE), own_frames()
        frames = [json.loads(line) for line in buffer.value.decode().splitlines()]
        self.assertEqual(frames[0]["kind"], "native")
        self.assertEqual([(f["name"], f["file"], f["line"]) for f in frames[1:]], own)

    # -- objects that die while their function returns --------------------

    def test_destructors_of_locals(self):
        kept = []

        class Dying:
            def __del__(self):
                kept.append(Snapshot())

        def hold():
            dying = Dying()
            return len([dying])

        hold()
        self.check(kept[-1])
        list(map(lambda _: hold(), [1]))
        self.check(kept[-1])
        list(map(lambda dying: 1, iter([Dying()])))
        self.check(kept[-1])

    def test_native_destructors_while_the_outermost_frame_returns(self):
        # A weakref callback implemented in C: no Python frame of its own.
        buffer = ctypes.create_string_buffer(SIZE)
        result = Result()
        import weakref

        class Target:
            pass

        seen = []
        capture = functools.partial(WITHOUT_GIL.probe_capture, buffer, SIZE, 4096,
                                    ctypes.byref(result))

        def scope(_):
            target = Target()
            seen.append(weakref.ref(target, capture_and_ignore))
            return 0

        capture_and_ignore = functools.partial(capture_c, capture, result, seen)
        own = own_frames()
        list(map(scope, [1]))
        frames = [json.loads(line) for line in buffer.value.decode().splitlines()]
        self.assertTrue(frames)
        self.assertEqual(result.loops, result.runs)
        python = [f["name"] for f in frames if f["kind"] == "python"]
        self.assertEqual(python[-len(own):], [name for name, _, _ in own])

    def test_collector_callbacks(self):
        kept = []

        class Cycle:
            def __del__(self):
                kept.append(Snapshot())

        cycle = Cycle()
        cycle.me = cycle
        del cycle
        gc.collect()
        self.check(kept[-1])

    # -- threads ----------------------------------------------------------

    def test_the_frame_is_found_without_a_call_in_every_thread(self):
        WITHOUT_GIL.probe_chain()  # checks the layout
        seen = [WITHOUT_GIL.probe_quick_frame()]
        thread = threading.Thread(target=lambda: seen.append(WITHOUT_GIL.probe_quick_frame()))
        thread.start()
        thread.join()
        self.assertEqual(seen, [1, 1])

    def test_threads_see_their_own_frames(self):
        kept = []
        barrier = threading.Barrier(8)

        def work(i):
            barrier.wait()
            for _ in range(20):
                kept.append(nest(i))

        def nest(i):
            return Snapshot() if i == 0 else nest(i - 1)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(kept), 160)
        for snapshot in kept:
            self.check(snapshot)

    def test_traced_and_profiled_functions(self):
        kept = []
        sys.setprofile(lambda *_: None)
        sys.settrace(lambda *_: None)
        try:
            kept.append(Snapshot())
        finally:
            sys.settrace(None)
            sys.setprofile(None)
        self.check(kept[0])

    def test_simple_namespace_attribute_calls(self):
        self.check(types.SimpleNamespace(f=Snapshot).f())

    # -- start and end of the interpreter ---------------------------------

    def run_script(self, source):
        done = subprocess.run([sys.executable, "-c", source], env=dict(os.environ),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode().split()

    def test_daemon_threads_survive_the_end_of_the_interpreter(self):
        self.run_script("""
import ctypes, os, threading, time
library = ctypes.CDLL(os.environ["DSTRACE_STACKS_PROBE"])
started = threading.Barrier(5)
def work():
    started.wait()
    while True:
        library.probe_repeat(1000, 1)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
started.wait()
""")

    def test_capture_during_finalization(self):
        out = self.run_script("""
import atexit, ctypes, os, sys
library = ctypes.CDLL(os.environ["DSTRACE_STACKS_PROBE"])
library.probe_repeat(1, 1)
class Last:
    repeat = library.probe_repeat
    write = os.write
    def __del__(self):
        self.write(1, b"frames=%d " % self.repeat(1, 0))
atexit.register(lambda: os.write(1, b"exit=%d " % library.probe_repeat(1, 0)))
sys.keep = Last()
""")
        values = dict(item.split("=") for item in out)
        self.assertGreaterEqual(int(values["exit"]), 1)
        self.assertGreaterEqual(int(values["frames"]), 0)

    def test_the_chain_of_the_last_event_is_kept_where_it_still_holds(self):
        event = WITHOUT_GIL.probe_chain
        kept = WITHOUT_GIL.probe_chain_kept()

        def leaf(n):
            event()
            if n % 3 == 0:
                event()

        def generator(n):
            for i in range(n):
                leaf(i)
                yield i

        def inner(n, deep):
            if deep:
                return inner(n, deep - 1)
            leaf(n)
            for _ in generator(n % 5):
                event()
            sorted([3, 1, 2], key=lambda x: event() or x)
            exec(compile("event()\nleaf(1)\n", "made-%d" % (n % 7), "exec"), {"event": event, "leaf": leaf})
            event()

        for i in range(300):
            inner(i, i % 11)
            if i % 50 == 0:
                event()
        self.assertGreater(WITHOUT_GIL.probe_chain_kept(), kept + 1000)

    def test_the_same_stack_again_reads_only_what_moved(self):
        def deep(n):
            if n:
                return deep(n - 1)
            return [WITHOUT_GIL.probe_chain_links_read() for _ in range(3)]

        self.assertLess(max(deep(40)[1:]), 5)

    def test_a_stack_deeper_than_the_chain_is_cut_and_the_next_one_whole(self):
        def deep(n):
            if n:
                return deep(n - 1)
            WITHOUT_GIL.probe_chain()

        for depth in (600, 3, 255, 256, 600, 600, 3):
            deep(depth)

    def test_code_that_was_given_back_to_the_system_is_not_looked_at(self):
        # So large that its memory is a mapping of its own; the next frame lies
        # where its frame lay.
        self.run_script("""
import ctypes, os
library = ctypes.CDLL(os.environ["DSTRACE_STACKS_PROBE"])
def run(code):
    exec(code, {"library": library})
def source(lines):
    return "x = 1\\n" * lines + "library.probe_chain()"
small = compile(source(0), "small", "exec")
run(compile(source(200000), "large", "exec"))
run(small)
raise SystemExit(library.probe_chain_errors())
""")

    def test_fork(self):
        self.run_script("""
import ctypes, os
library = ctypes.CDLL(os.environ["DSTRACE_STACKS_PROBE"])
before = library.probe_repeat(1, 0)
pid = os.fork()
if pid == 0:
    os._exit(0 if abs(library.probe_repeat(1, 0) - before) <= 1 else 1)
raise SystemExit(os.waitpid(pid, 0)[1])
""")


def capture_c(capture, result, seen, _reference):
    capture()


if __name__ == "__main__":
    unittest.main()
