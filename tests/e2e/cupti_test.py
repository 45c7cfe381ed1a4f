# SPDX-License-Identifier: Apache-2.0
"""DSTRACE_CUPTI=1: the cross-check, and making room for the program's own CUPTI."""
import json
import os

import harness

PROGRAM = os.environ["E2E_CUPTI_PROGRAM"]
PLAIN = "0 records, 0 unknown buffers\n"


class Cupti(harness.EndToEnd):
    def start_with(self, mode, **variables):
        return self.run_program([PROGRAM, mode], DSTRACE_CUPTI="1", **variables)

    def check_of(self, run):
        self.only_trace(run)
        return self.report_json(run.logs[0])["cupti"]

    def test_cupti_and_the_hooks_count_the_same(self):
        run = self.start_with("plain")
        self.assert_clean(run)
        self.assertEqual(run.stdout, PLAIN)
        check = self.check_of(run)
        # The allocation that made the context came before CUPTI.
        self.assertEqual(check["cupti"]["device"], {"count": 2, "bytes": 3 << 20})
        self.assertEqual(check["hooks"]["device"], {"count": 2, "bytes": 3 << 20})
        self.assertEqual((check["agrees"], check["dropped"], check["unknown"]), (True, 0, 0))
        text = self.report(run.logs[0]).stdout
        self.assertIn("saw 2 allocations, hooks saw 2", text)
        self.assertEqual(self.only_trace(run).properties["cupti"], "running")

    def test_records_of_older_versions_count_the_same(self):
        for version in ("18", "24", "130000"):
            run = self.start_with("plain", FAKE_CUPTI_VERSION=version)
            self.assert_clean(run)
            check = self.report_json(run.logs.pop())["cupti"]
            self.assertEqual((check["version"], check["agrees"]), (int(version), True))
            self.clear()

    def clear(self):
        for name in os.listdir(self.directory):
            os.unlink(os.path.join(self.directory, name))

    def test_what_only_cupti_saw_stands_in_the_report(self):
        run = self.start_with("missed")
        self.assert_clean(run)
        check = self.check_of(run)
        self.assertFalse(check["agrees"])
        text = " ".join(self.report(run.logs[0]).stdout.split())
        self.assertIn("saw 3 allocations, hooks saw 2", text)
        self.assertIn("against 2", text)

    def test_it_is_off_unless_asked_for(self):
        run = self.run_program([PROGRAM, "plain"])
        self.assert_clean(run)
        self.only_trace(run)
        self.assertNotIn("cupti", self.report_json(run.logs[0]))

    def test_a_programs_profiler_sees_exactly_its_own(self):
        bare = self.run_program([PROGRAM, "profiler"], preload=False)
        self.assertEqual(bare.stdout, "2 records, 0 unknown buffers\n")
        hooks = self.run_program([PROGRAM, "profiler"])
        self.assertEqual(hooks.stdout, bare.stdout)
        self.clear()
        both = self.start_with("profiler")
        self.assert_clean(both)
        self.assertEqual(both.stdout, bare.stdout)
        check = self.check_of(both)
        self.assertTrue(check["stopped_early"])
        self.assertEqual(check["cupti"]["device"]["count"], 2)
        self.assertTrue(check["agrees"])
        properties = self.only_trace(both).properties
        self.assertEqual(properties["cupti.program"], "cuptiSubscribe")
        self.assertEqual(properties["cupti"], "stepped aside for the program")

    def test_a_program_that_came_first_keeps_cupti(self):
        bare = self.run_program([PROGRAM, "first"], preload=False)
        run = self.start_with("first")
        self.assert_clean(run)
        self.assertEqual(run.stdout, bare.stdout)
        trace = self.only_trace(run)
        self.assertEqual(trace.properties["cupti"], "not started: the program uses CUPTI")
        self.assertNotIn("cupti", json.loads(self.report(run.logs[0], "--format", "json").stdout))

    def test_without_a_driver_one_line_is_said(self):
        run = self.start_with("plain", FAKE_CUPTI_FAIL="1")
        self.assertEqual((run.status, run.stdout), (0, PLAIN))
        self.assertEqual(len(run.stderr.splitlines()), 1, run.stderr)
        self.assertIn("without CUPTI", run.stderr)
        self.assertIn("no driver", self.only_trace(run).properties["cupti"])

    def test_a_quick_exit_keeps_what_was_handed_over(self):
        run = self.start_with("quick")
        self.assert_clean(run, status=3)
        self.assertEqual(self.check_of(run)["cupti"]["device"]["count"], 0)

    def test_the_end_stands_after_every_event(self):
        trace = self.only_trace(self.start_with("plain"))
        self.assertGreaterEqual(trace.ends[0]["time"],
                                max(event["time"] for event in trace.events))


if __name__ == "__main__":
    harness.main()
