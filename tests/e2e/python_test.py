# SPDX-License-Identifier: Apache-2.0
"""Python programs under the preload, with the interpreter E2E_PYTHON: the log's
Python frames are those that the interpreter itself reports."""
import json
import signal
import subprocess
import unittest

import harness
import trace_reader


def version():
    text = subprocess.check_output(
        [harness.PYTHON, "-c", "import sys; print(*sys.version_info[:2])"],
        universal_newlines=True)
    return tuple(int(word) for word in text.split())


VERSION = version()
QUALIFIED = VERSION >= (3, 11)  # co_qualname


class Shapes(harness.EndToEnd):
    def run_shape(self, name, **variables):
        run = self.run_python("shapes.py", name, **variables)
        self.assert_clean(run)
        trace = self.only_trace(run)
        logged = {event["size"]: event["stack"] for event in trace.allocations()}
        return trace, logged, json.loads(run.stdout)

    def described(self, trace, frame):
        name = trace.text(frame["name"])
        return [name if QUALIFIED else name.rsplit(".", 1)[-1], frame["line"],
                trace.text(frame["file"]), frame["first_line"]]

    def assert_same_stacks(self, name, **variables):
        trace, logged, expected = self.run_shape(name, **variables)
        self.assertGreater(len(expected), 0)
        for size, stack in expected.items():
            frames = [frame for frame in trace.frames_of(logged[int(size)])
                      if frame["kind"] == 1]
            with self.subTest(size=size):
                self.assertEqual(trace.text(frames[0]["name"]), "allocate")
                self.assertEqual([self.described(trace, frame) for frame in frames[1:]], stack)

    def test_nested_functions(self):
        self.assert_same_stacks("nested")

    def test_recursion(self):
        self.assert_same_stacks("recursion")

    def test_generators(self):
        self.assert_same_stacks("generators")

    def test_comprehensions(self):
        self.assert_same_stacks("comprehensions")

    def test_coroutines(self):
        self.assert_same_stacks("coroutines")

    def test_methods(self):
        self.assert_same_stacks("methods")

    def test_python_called_from_c(self):
        self.assert_same_stacks("through_c")

    def test_python_called_back_through_ctypes(self):
        self.assert_same_stacks("through_ctypes")

    def test_executed_code_that_is_gone_keeps_its_own_names(self):
        self.assert_same_stacks("executed")

    def test_exception_handlers(self):
        self.assert_same_stacks("exceptions")

    def test_threads(self):
        self.assert_same_stacks("threads")

    def test_decorators(self):
        self.assert_same_stacks("decorated")

    def test_python_frames_alone(self):
        self.assert_same_stacks("through_c", DSTRACE_STACKS="python")

    def test_no_stacks_when_none_are_asked_for(self):
        _, logged, expected = self.run_shape("nested", DSTRACE_STACKS="none")
        self.assertEqual(len(logged), len(expected))
        self.assertEqual(set(logged.values()), {0})

    def test_a_stack_too_deep_is_cut_at_its_outer_end_and_marked(self):
        trace, logged, expected = self.run_shape("deep_recursion")
        (size, stack), = expected.items()
        record = trace.stacks[logged[int(size)]]
        frames = [frame for frame in trace.frames_of(record["id"]) if frame["kind"] == 1]
        self.assertGreater(len(frames), 100)
        described = [self.described(trace, frame) for frame in frames[1:]]
        self.assertEqual(described, stack[:len(described)])
        self.assertEqual(bool(record["truncated"]), len(described) < len(stack))

    def test_native_frames_stand_between_the_python_frames_they_connect(self):
        trace, logged, expected = self.run_shape("through_ctypes")
        names = trace.names(logged[int(next(iter(expected)))])
        compare = [i for i, name in enumerate(names) if name.endswith("compare")][0]
        caller = [i for i, name in enumerate(names) if name == "through_ctypes"][0]
        between = names[compare + 1:caller]
        self.assertTrue(any("qsort" in name for name in between), names)

    def test_the_interpreters_own_loop_is_not_shown(self):
        trace, logged, expected = self.run_shape("nested")
        for size in expected:
            for name in trace.names(logged[int(size)]):
                self.assertNotIn("PyEval_EvalFrame", name)


class Endings(harness.EndToEnd):
    def allocations(self, run):
        return sorted(len(trace_reader.read_trace(log).allocations()) for log in run.logs)

    def test_os_exit_keeps_every_event(self):
        run = self.run_python("endings.py", "os_exit")
        self.assert_clean(run, 4)
        self.assertEqual(self.allocations(run), [5])

    def test_an_uncaught_exception_is_the_programs_own(self):
        run = self.run_python("endings.py", "exception")
        self.assertEqual(run.status, 1)
        self.assertIn("the program's own failure", run.stderr)
        self.assertNotIn("dstrace", run.stderr)
        self.assertEqual(self.allocations(run), [5])

    def test_sigterm(self):
        run = self.run_python("endings.py", "sigterm")
        self.assertEqual(run.status, -signal.SIGTERM)
        self.assertEqual(self.allocations(run), [5])

    def test_fork(self):
        run = self.run_python("endings.py", "fork")
        self.assert_clean(run)
        self.assertEqual(self.allocations(run), [5, 10])

    def test_spawn(self):
        run = self.run_python("endings.py", "spawn")
        self.assert_clean(run)
        self.assertEqual(self.allocations(run), [5, 5])

    def test_exec(self):
        run = self.run_python("endings.py", "execute")
        self.assert_clean(run)
        self.assertEqual(self.allocations(run), [5])


class Properties(harness.EndToEnd):
    def test_the_python_version_is_in_the_log(self):
        trace = self.only_trace(self.run_python("shapes.py", "nested"))
        self.assertTrue(
            trace.properties.get("python.version", "").startswith("%d.%d" % VERSION),
            trace.properties)


if __name__ == "__main__":
    unittest.main(verbosity=2)
