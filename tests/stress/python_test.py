# SPDX-License-Identifier: Apache-2.0
"""Deep recursion and short-lived code objects, with the interpreter
E2E_PYTHON: in the log and in the report."""
import json
import os
import resource
import unittest

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS = 20000 if os.environ.get("DSTRACE_STRESS") else 1000
UNIT = 512
# As in preload/capture/thread_state.h.
MAX_PYTHON = 256
MARK = "(deeper frames were not recorded)"


class Python(harness.EndToEnd):
    def run_here(self, program, *arguments, **variables):
        return self.run_program(
            [harness.PYTHON, os.path.join(HERE, "python", program)] + [str(a) for a in arguments], **variables)

    def python_frames(self, trace, stack):
        return [frame for frame in trace.frames_of(stack) if frame["kind"] == 1]


class DeepRecursion(Python):
    def one_stack(self, depth, **variables):
        """(the stack's record, its Python frames, the report with it)"""
        run = self.run_here("deep.py", depth, **variables)
        self.assert_clean(run)
        trace = self.only_trace(run)
        event, = [event for event in trace.allocations() if event["size"] == 12345 * UNIT]
        report = self.report(run.logs[0], "--stacks")
        self.assertEqual(report.returncode, 0, report.stderr)
        os.unlink(run.logs[0])
        return trace.stacks[event["stack"]], self.python_frames(trace, event["stack"]), trace, report.stdout

    def check_cut(self, depth, **variables):
        stack, frames, trace, report = self.one_stack(depth, **variables)
        self.assertEqual(stack["truncated"], 1)
        self.assertLessEqual(len(frames), MAX_PYTHON)
        self.assertEqual({trace.text(frame["name"]) for frame in frames}, {"recurse"})
        self.assertIn(MARK, report)

    def test_a_stack_below_the_cap_is_whole(self):
        for depth in (10, 100):
            stack, frames, trace, report = self.one_stack(depth, DSTRACE_STACKS="python")
            # Driver calls have native frames too, one per call before 3.11.
            if stack["truncated"]:
                continue
            self.assertEqual(len(frames), depth + 1)
            self.assertNotIn(MARK, report)

    def test_1000_calls_are_cut_and_marked(self):
        self.check_cut(1000)

    def test_1000_calls_are_cut_and_marked_with_python_stacks_alone(self):
        self.check_cut(1000, DSTRACE_STACKS="python")

    def test_10000_calls_are_cut_and_marked(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (hard if hard > 0 else 512 << 20, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_STACK, (soft, hard))
        self.check_cut(10000)

    def test_the_frames_kept_at_the_cap_are_the_innermost_ones(self):
        # Exactly as many as fit, one fewer, one more.
        for depth in (MAX_PYTHON - 2, MAX_PYTHON - 1, MAX_PYTHON):
            stack, frames, trace, _ = self.one_stack(depth)
            names = [trace.text(frame["name"]) for frame in frames]
            if not stack["truncated"]:
                self.assertEqual(names, ["recurse"] * depth + ["<module>"])
            else:
                self.assertLessEqual(len(names), MAX_PYTHON)
            self.assertEqual(set(names[:100]), {"recurse"})


class MadeCode(Python):
    def expected(self, number):
        i, kind = divmod(number, 4)
        if kind == 1:
            return "<module>", "<file %07d>" % i, 1
        if kind == 2:
            return "made_%07d" % i, "<same>", 2
        return "moved", "<moved>", i % 200 + 2

    def check(self, **variables):
        run = self.run_here("made.py", ROUNDS, **variables)
        self.assert_clean(run)
        # Otherwise nothing is tested.
        self.assertGreater(int(run.stdout), ROUNDS // 4)
        return run

    def stale(self, run):
        trace = self.only_trace(run)
        events = [event for event in trace.allocations() if event["size"] % UNIT == 0]
        self.assertEqual(len(events), 3 * ROUNDS)
        wrong = []
        for event in events:
            # allocate() first, then the code that was made.
            frame = self.python_frames(trace, event["stack"])[1]
            found = trace.text(frame["name"]), trace.text(frame["file"]), frame["line"]
            if found != self.expected(event["size"] // UNIT):
                wrong.append((found, self.expected(event["size"] // UNIT)))
        return wrong

    def test_no_event_has_the_name_of_code_that_is_gone(self):
        self.assertEqual(self.stale(self.check())[:3], [])

    def test_nor_with_python_stacks_alone(self):
        self.assertEqual(self.stale(self.check(DSTRACE_STACKS="python"))[:3], [])

    def test_the_report_has_each_name_once(self):
        run = self.check()
        process = self.report(run.logs[0], "--format", "json", "--stacks", "--top", "1000000")
        self.assertEqual(process.returncode, 0, process.stderr)
        rows = [row for device in json.loads(process.stdout)["devices"] for row in device["holders"]]
        files = [frame["file"] for row in rows for frame in row.get("stack", [])
                 if frame["file"].startswith("<file ")]
        self.assertEqual(len(files), len(set(files)))


if __name__ == "__main__":
    harness.main()
