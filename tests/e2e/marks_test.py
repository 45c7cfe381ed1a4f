# SPDX-License-Identifier: Apache-2.0
"""Phases in the program's own words: NVTX, the C header, the Python module."""
import os

import harness

MARKS = os.environ["E2E_MARKS_PROGRAM"]
NVTX = os.environ.get("E2E_NVTX_PROGRAM", "")
ROOT = os.path.dirname(os.path.dirname(harness.HERE))
MODULE = os.path.join(ROOT, "python")
KINDS = ("point", "push", "pop")


def lines(trace):
    """["push load", "pop", "point warm @domain", ...]"""
    found = []
    for mark in sorted(trace.marks, key=lambda mark: mark["time"]):
        words = [KINDS[mark["kind"]], trace.text(mark["name"])]
        if mark["domain"]:
            words.append("@" + trace.text(mark["domain"]))
        found.append(" ".join(word for word in words if word))
    return found


class Marks(harness.EndToEnd):
    def test_the_c_functions_mark_a_program_that_uses_cuda(self):
        run = self.run_program([MARKS, "cuda"])
        self.assert_clean(run)
        trace = self.only_trace(run)
        self.assertEqual(lines(trace), ["push load", "point half", "pop"])
        # The range that was open at the first CUDA call stands before it.
        push = next(mark for mark in trace.marks if mark["kind"] == 1)
        allocations = sorted(trace.allocations(), key=lambda event: event["time"])
        self.assertLessEqual(push["time"], allocations[0]["time"])

    def test_the_report_answers_at_a_mark(self):
        run = self.run_program([MARKS, "cuda"])
        at = {}
        for name in ("load", "half"):
            process = self.report(run.logs[0], "--format", "json", "--at", "mark:" + name)
            self.assertEqual(process.returncode, 0, process.stderr)
            at[name] = process.stdout
            self.assertIn('"mark:%s"' % name, process.stdout)
        self.assertNotEqual(at["load"], at["half"])
        process = self.report(run.logs[0], "--at", "mark:nowhere")
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("half", process.stderr)

    def test_marks_alone_leave_no_file(self):
        for command in ([MARKS, "none"], [NVTX, "none"] if NVTX else [MARKS, "none"]):
            run = self.run_program(command)
            self.assert_clean(run)
            self.assertEqual(run.logs, [])

    def test_without_the_preload_the_c_functions_do_nothing(self):
        run = self.run_program([MARKS, "cuda"], preload=False)
        self.assert_clean(run)
        self.assertEqual((run.stdout, run.logs), ("done\n", []))


class Python(harness.EndToEnd):
    def test_the_module_marks_a_program_that_uses_cuda(self):
        run = self.run_python("marks.py", "cuda", PYTHONPATH=MODULE)
        self.assert_clean(run)
        self.assertEqual(run.stdout, "traced\n")
        self.assertEqual(lines(self.only_trace(run)), [
            "push load", "push step", "pop", "point half", "pop",
            "push odd \u00fc", "pop", "push fails", "pop"])

    def test_without_cuda_it_leaves_no_file(self):
        run = self.run_python("marks.py", PYTHONPATH=MODULE)
        self.assert_clean(run)
        self.assertEqual((run.stdout, run.logs), ("traced\n", []))

    def test_without_the_preload_it_does_nothing(self):
        run = self.run_python("marks.py", "cuda", preload=False, PYTHONPATH=MODULE)
        self.assert_clean(run)
        self.assertEqual((run.stdout, run.logs), ("alone\n", []))


class Nvtx(harness.EndToEnd):
    def setUp(self):
        super().setUp()
        if not NVTX:
            self.skipTest("no NVTX header found")

    def test_ranges_of_nvtx_are_in_the_trace(self):
        run = self.run_program([NVTX, "cuda"])
        self.assert_clean(run)
        self.assertEqual(lines(self.only_trace(run)), [
            "push outer", "point warm", "push gather @DeepSpeed", "pop @DeepSpeed",
            "push copy", "pop copy", "pop"])

    def test_the_program_sees_what_it_sees_without_a_tool(self):
        traced = self.run_program([NVTX, "cuda"])
        bare = self.run_program([NVTX, "cuda"], preload=False)
        self.assertEqual(traced.stdout, bare.stdout)

    def test_the_tool_that_the_user_chose_stays(self):
        run = self.run_program([NVTX, "cuda"], NVTX_INJECTION64_PATH="/nowhere/other.so")
        self.assert_clean(run)
        self.assertEqual(self.only_trace(run).marks, [])

    def test_it_can_be_switched_off(self):
        for variable in ({"DSTRACE_NVTX": "0"}, {"DSTRACE_DISABLE": "1"}):
            run = self.run_program(["sh", "-c", 'echo "[$NVTX_INJECTION64_PATH]"'], **variable)
            self.assertEqual(run.stdout, "[]\n")
        # Also where the variable was inherited.
        run = self.run_program([NVTX, "cuda"], DSTRACE_NVTX="0", NVTX_INJECTION64_PATH=harness.PRELOAD)
        self.assert_clean(run)
        self.assertEqual(self.only_trace(run).marks, [])

    def test_a_child_that_lost_the_preload_runs_as_without_dstrace(self):
        run = self.run_program(["env", "-u", "LD_PRELOAD", NVTX, "cuda"])
        self.assert_clean(run)
        self.assertEqual(run.logs, [])


if __name__ == "__main__":
    harness.main()
