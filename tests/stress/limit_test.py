# SPDX-License-Identifier: Apache-2.0
"""STRESS_EVENTS events with DSTRACE_LOG_LIMIT=STRESS_LIMIT against the same
program without a limit: at the end both traces hold the same memory, stack by
stack, to the byte, and what the program itself says.

The run of docs/PERFORMANCE.md (both logs lie in TMPDIR, 1 GB):
  STRESS_EVENTS=100000000 STRESS_LIMIT=256MiB ctest -R stress.limit -V
"""
import json
import os
import subprocess
import time
import unittest

import harness

DRIVER = os.environ["E2E_LIMIT_DRIVER"]
EVENTS = int(os.environ.get("STRESS_EVENTS", "20000000" if os.environ.get("DSTRACE_STRESS") else "3000000"))
LIMIT = os.environ.get("STRESS_LIMIT", "4MiB")
# Of the recorder: tables, thread states, one open chunk.
MAX_EXTRA_KIB = 16 << 10


class Limit(harness.EndToEnd):
    def drive(self, **variables):
        """(live bytes, KiB of RSS, seconds)"""
        begin = time.monotonic()
        process = self.start([DRIVER, str(EVENTS)], **variables)
        stdout, stderr = process.communicate()
        self.assertEqual((process.returncode, stderr), (0, ""))
        live, rss = (int(word) for word in stdout.split())
        return live, rss, time.monotonic() - begin

    def report_of(self, name, *options):
        process = subprocess.run([harness.REPORT, os.path.join(self.directory, name), "--at", "end"] + list(options),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return process.stdout

    def end_of(self, name):
        """(the trace's facts, the ledger at the end, live bytes by stack)"""
        run = json.loads(self.report_of(name, "--format", "json"))
        end = next(s for s in run["devices"][0]["snapshots"] if s["name"] == "end")
        self.assertEqual(run["trace"]["lost"], [])
        return run["trace"], end["ledger"], sorted(self.report_of(name, "--format", "folded").splitlines())

    def test_the_live_set_is_that_of_an_unlimited_run(self):
        _, bare_rss, bare_time = self.drive(preload=False)
        live, rss, seconds = self.drive(DSTRACE_OUTPUT="limited.pb", DSTRACE_LOG_LIMIT=LIMIT)
        trace, ledger, stacks = self.end_of("limited.pb")
        live_all, rss_all, seconds_all = self.drive(DSTRACE_OUTPUT="all.pb")
        trace_all, ledger_all, stacks_all = self.end_of("all.pb")
        for name, facts, kib, took in (("limit " + LIMIT, trace, rss, seconds),
                                       ("no limit", trace_all, rss_all, seconds_all)):
            print("%-14s %10d events read, %10d bytes on disk, RSS +%d KiB, %.1f s (bare %.1f s), recorder's own %s" %
                  (name, facts["events"], facts["bytes"], kib - bare_rss, took, bare_time, facts["tracer_bytes"]))
        print("live at the end: %d bytes in %d stacks, both" % (ledger["torch_live"], len(stacks)))

        self.assertEqual(live, live_all)
        self.assertEqual(ledger["torch_live"], live)
        self.assertEqual(ledger_all["torch_live"], live)
        self.assertEqual(ledger["torch_reserved"], ledger_all["torch_reserved"])
        self.assertEqual(stacks, stacks_all)
        self.assertGreater(len(stacks), 1)

        unit = {"MiB": 20, "GiB": 30}[LIMIT[-3:]]
        self.assertLessEqual(trace["bytes"], int(LIMIT[:-3]) << unit)
        self.assertEqual(trace["log_limit"], int(LIMIT[:-3]) << unit)
        self.assertGreater(trace_all["bytes"], trace["bytes"])
        self.assertGreater(trace["history_start_ns"], 0)
        self.assertIn("history complete since", self.report_of("limited.pb"))
        self.assertEqual(trace_all["history_start_ns"], 0)
        self.assertIsNone(trace_all["log_limit"])
        self.assertGreaterEqual(trace_all["events"], EVENTS * 99 // 100)
        if os.environ["E2E_SANITIZER"]:
            return  # its shadow of the recorder's memory is resident too
        self.assertLess(rss - bare_rss, MAX_EXTRA_KIB)
        self.assertLess(rss_all - bare_rss, MAX_EXTRA_KIB)


if __name__ == "__main__":
    harness.main()
