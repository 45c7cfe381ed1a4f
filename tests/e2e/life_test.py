# SPDX-License-Identifier: Apache-2.0
"""How a process ended, as its parent and as the report know it; whose children are followed."""
import os
import signal
import unittest

import harness
import trace_reader

PROGRAM = os.environ["E2E_LIFE_PROGRAM"]
KILLED = "killed or crashed (no end was recorded)"

# mode, status that the parent sees, what the report says after "ended: ".
ENDS = (
    ("return", 3, "exit status 3"),
    ("exit", 6, "exit status 6"),
    ("_exit", 5, "_exit(5)"),
    ("_Exit", 5, "_exit(5)"),
    ("quick_exit", 5, "_exit(5)"),
    ("abort", -signal.SIGABRT, "abort()"),
    ("terminate", -signal.SIGABRT, "abort()"),
    ("term", -signal.SIGTERM, KILLED),
    ("segv", -signal.SIGSEGV, KILLED),
    ("kill", -signal.SIGKILL, KILLED),
    ("execve", 0, "replaced itself by exec of /bin/true"),
    ("execv", 0, "replaced itself by exec of /bin/true"),
    ("execvp", 0, "replaced itself by exec of true"),
    ("execvpe", 0, "replaced itself by exec of true"),
    ("fexecve", 0, "replaced itself by exec of an open file"),
    ("execl", 4, "replaced itself by exec of /bin/sh"),
    ("execlp", 4, "replaced itself by exec of sh"),
    ("execle", 9, "replaced itself by exec of /bin/sh"),
    ("failed-exec", 7, "exit status 7"),
    ("failed-exec-kill", -signal.SIGKILL, KILLED),
)

PYTHON_ENDS = (
    ("pass", 0, "exit status 0"),
    ("sys.exit(3)", 3, "exit status 3"),
    ("raise ValueError", 1, "exit status 1"),
    ("raise SystemExit('no')", 1, "exit status 1"),
    ("os._exit(4)", 4, "_exit(4)"),
    ("os.abort()", -signal.SIGABRT, "abort()"),
    ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, KILLED),
    ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, KILLED),
    ("ctypes.string_at(0)", -signal.SIGSEGV, KILLED),
    ("os.execvp('true', ['true'])", 0, "replaced itself by exec of "),
)


class Life(harness.EndToEnd):
    def ended(self, log):
        """What the report's header says, on one line."""
        text = " ".join(self.report(log).stdout.split())
        return text.split("; ended: ", 1)[1]

    def run_life(self, mode, **variables):
        return self.run_program([PROGRAM, mode], **variables)

    def counts(self, run):
        """Allocations in each log; the logs make place for the next run's."""
        traces = [trace_reader.read_trace(log) for log in run.logs]
        for log in run.logs:
            os.unlink(log)
        self.assertEqual(len({trace.header["pid"] for trace in traces}), len(traces))
        return sorted(len(trace.allocations()) for trace in traces)


class Ends(Life):
    def test_the_report_says_how_it_ended_and_the_parent_sees_what_it_would(self):
        for mode, status, text in ENDS:
            with self.subTest(mode=mode):
                bare = self.run_life(mode, preload=False)
                run = self.run_life(mode)
                self.assertEqual((run.status, run.stderr, bare.status),
                                 (status, bare.stderr, status))
                ended = self.ended(run.logs[0])
                self.assertEqual(self.counts(run), [3])
                self.assertTrue(ended.startswith(text), ended[:200])

    def test_a_python_programs_end(self):
        program = ("import ctypes, os, signal, sys; "
                   "ctypes.CDLL('libcudart.so.13').cudaMalloc(ctypes.byref(ctypes.c_void_p()), 512); ")
        for code, status, text in PYTHON_ENDS:
            with self.subTest(code=code):
                run = self.run_program([harness.PYTHON, "-c", program + code])
                self.assertEqual(run.status, status, run.stderr)
                self.assertNotIn("dstrace", run.stderr)
                ended = self.ended(run.logs[0])
                self.assertEqual(self.counts(run), [1])
                self.assertTrue(ended.startswith(text), ended[:200])

    def test_the_programs_signal_handlers_are_as_without_us(self):
        self.assert_clean(self.run_life("handlers"))


class Processes(Life):
    def test_children_of_each_kind_have_a_log_of_their_own(self):
        # mode, status, allocations in each log
        for mode, status, counts in (("vfork", 3, [3, 3]), ("spawn", 3, [3, 3]),
                                     ("system", 3, [3, 3]), ("fork-before", 0, [3, 5]),
                                     ("daemonise", 0, [3, 5])):
            with self.subTest(mode=mode):
                # The daemon works in /. Its pipes are ours: they close when it
                # is gone, and not before.
                run = self.run_life(mode, DSTRACE_OUTPUT=os.path.join(self.directory, "%p.pb"))
                self.assertEqual((run.status, run.stderr), (status, ""))
                self.assertEqual(self.counts(run), counts)


class Follow(Life):
    # mode, ranks' variables, DSTRACE_FOLLOW, allocations in each log
    CASES = (
        ("fork-before", {}, "all", [3, 5]),
        ("fork-before", {}, "rank0", [3, 5]),
        ("fork-before", {}, "none", [3]),
        ("fork-before", {"RANK": 0, "LOCAL_RANK": 0}, "rank0", [3, 5]),
        ("fork-before", {"RANK": 8, "LOCAL_RANK": 0}, "rank0", []),
        ("fork-before", {"RANK": 1}, "all", [3, 5]),
        ("fork-before", {"RANK": 1}, "none", [3]),
        ("fork-before", {"LOCAL_RANK": 1}, "rank0", []),
        ("fork-before", {"OMPI_COMM_WORLD_RANK": 1, "SLURM_PROCID": 0}, "rank0", []),
        ("fork-before", {"OMPI_COMM_WORLD_RANK": 1}, "rank0", []),
        ("fork-before", {"SLURM_PROCID": 0}, "rank0", [3, 5]),
        ("child-kill", {}, "none", [3]),
        ("spawn", {}, "all", [3, 3]),
        ("spawn", {}, "none", [3]),
        ("spawn", {"RANK": 2}, "rank0", []),
        ("vfork", {}, "none", [3]),
        ("system", {}, "none", [3]),
    )

    def test_who_records(self):
        for mode, ranks, follow, counts in self.CASES:
            with self.subTest(mode=mode, ranks=ranks, follow=follow):
                run = self.run_life(mode, DSTRACE_FOLLOW=follow, **ranks)
                self.assertEqual(run.stderr, "")
                self.assertEqual(self.counts(run), counts)

    def test_a_program_that_replaces_itself_is_still_the_one_that_was_started(self):
        run = self.run_program(["sh", "-c", "exec %s return" % PROGRAM], DSTRACE_FOLLOW="none")
        self.assertEqual((run.status, self.counts(run)), (3, [3]))

    def test_a_shells_children_are_children(self):
        run = self.run_program(["sh", "-c", "%s return; true" % PROGRAM], DSTRACE_FOLLOW="none")
        self.assertEqual((run.status, run.logs), (0, []))


if __name__ == "__main__":
    unittest.main(verbosity=2)
