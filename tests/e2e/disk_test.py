# SPDX-License-Identifier: Apache-2.0
"""No room or no right to write: the program runs to its own end, and one line
on stderr says what happened."""
import os
import re
import resource
import shutil
import subprocess
import unittest

import harness
import trace_reader


def private_mounts():
    """A command in front of which mounts are allowed and stay private, or None."""
    for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
        if shutil.which("unshare") and subprocess.run(
                unshare + ["mount", "-t", "tmpfs", "none", "/mnt"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            return unshare
    return None


UNSHARE = private_mounts()


class Disk(harness.EndToEnd):
    def assert_one_line(self, run, *words):
        self.assertEqual((run.status, run.stdout), (0, "done\n"), run.stderr)
        lines = run.stderr.splitlines()
        self.assertEqual(len(lines), 1, run.stderr)
        self.assertTrue(lines[0].startswith("dstrace: "), lines[0])
        for word in words:
            self.assertIn(word, lines[0])

    def assert_lost(self, run, why):
        report = self.report(run.logs[0])
        self.assertEqual(report.returncode, 0, report.stderr)
        self.assertRegex(report.stdout, r"LOST: [0-9,]+ x disk_full \(%s\)" % re.escape(why))

    def test_a_directory_that_does_not_exist(self):
        run = self.run_workload("pairs", 5000, DSTRACE_OUTPUT="/nowhere/at/all/run.pb")
        self.assert_one_line(run, "/nowhere/at/all/run.pb")

    def test_a_directory_that_may_not_be_written(self):
        # root may write anywhere but to /proc.
        run = self.run_workload("pairs", 5000, DSTRACE_OUTPUT="/proc/run.pb")
        self.assert_one_line(run, "/proc/run.pb")

    def test_an_unwritable_directory_of_many_threads_says_so_once(self):
        run = self.run_workload("threads", 50, 32, DSTRACE_OUTPUT="/nowhere/run.pb")
        self.assert_one_line(run)

    def test_quiet_says_nothing(self):
        run = self.run_workload("pairs", 10, DSTRACE_OUTPUT="/nowhere/run.pb", DSTRACE_QUIET=1)
        self.assert_clean(run)

    @unittest.skipUnless(UNSHARE, "may not mount a small tmpfs")
    def test_a_full_disk_keeps_what_was_written_before(self):
        small = os.path.join(self.scratch, "small")
        kept = os.path.join(self.scratch, "kept.pb")
        os.mkdir(small)
        script = ('mount -t tmpfs -o size=512k none "$1" && '
                  'env LD_PRELOAD="$2" DSTRACE_OUTPUT="$1/run.pb" "$3" pairs 60000; '
                  'status=$?; cp "$1/run.pb" "$4"; exit $status')
        run = self.run_program(
            UNSHARE + ["sh", "-c", script, "sh", small, harness.PRELOAD, harness.WORKLOAD, kept],
            LD_PRELOAD=None)

        self.assert_one_line(run, "no space left on the disk")
        trace = trace_reader.read_trace(kept)
        self.assertGreater(len(trace.allocations()), 1000)
        self.assertLess(len(trace.allocations()), 60000)
        report = self.report(kept)
        self.assertEqual(report.returncode, 0, report.stderr)
        self.assertRegex(report.stdout, r"LOST: [0-9,]+ x disk_full \(no space left on the disk\)")

    def test_a_file_size_limit_does_not_kill_the_program(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (300000, 300000))

        process = subprocess.run(
            [harness.WORKLOAD, "pairs", "60000"], cwd=self.directory, env=self.environment(),
            preexec_fn=limit, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, universal_newlines=True, timeout=harness.TIMEOUT)

        run = harness.Run(process, self.directory)
        self.assert_one_line(run, "ulimit -f")
        self.assert_lost(run, "the limit on file sizes, ulimit -f, is reached")

    def test_a_program_that_closes_the_trace_is_told_so(self):
        run = self.run_workload("closed", 60000)
        self.assert_one_line(run, "the program closed the file")
        self.assert_lost(run, "the program closed the file")


if __name__ == "__main__":
    harness.main()
