# SPDX-License-Identifier: Apache-2.0
"""dstrace-report as a command: options, error lines, exit statuses, pipes.

usage: cli_test.py path/to/dstrace-report
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

PROGRAM = None
SAMPLES = sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                        "..", "..", "samples", "*.pb")))


def run(*words, **more):
    return subprocess.run([PROGRAM] + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True, timeout=60, **more)


class Usage(unittest.TestCase):
    def assert_one_line(self, words, status, *parts):
        result = run(*words)
        self.assertEqual((result.returncode, result.stdout), (status, ""), result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def test_bad_options_are_one_line_and_status_2(self):
        for words, part in ((("--frobnicate", "x.pb"), "--frobnicate"),
                            (("-x",), "-x"),
                            ((), "no trace file"),
                            (("--at", "noon", "x.pb"), "--at"),
                            (("--at=mark:", "x.pb"), "--at"),
                            (("--at", "-1s", "x.pb"), "--at"),
                            (("--format=pdf", "x.pb"), "--format"),
                            (("--top", "0", "x.pb"), "--top"),
                            (("--top", "many", "x.pb"), "--top"),
                            (("--device", "-2", "x.pb"), "--device"),
                            (("--weight", "full", "x.pb"), "--weight"),
                            (("--color", "red", "x.pb"), "--color"),
                            (("x.pb", "-o"), "-o")):
            self.assert_one_line(words, 2, part)

    def test_files_that_are_no_trace_are_one_line_and_status_1(self):
        with tempfile.TemporaryDirectory() as folder:
            empty = os.path.join(folder, "empty.pb")
            open(empty, "w").close()
            text = os.path.join(folder, "text.pb")
            with open(text, "w") as file:
                file.write("this is not a trace\n" * 100)
            missing = os.path.join(folder, "missing.pb")
            self.assert_one_line((empty,), 1, empty)
            self.assert_one_line((text,), 1, text, "byte")
            self.assert_one_line((missing,), 1, missing)
            self.assert_one_line((folder,), 1, folder)

    def test_bad_rules_name_file_and_place(self):
        with tempfile.TemporaryDirectory() as folder:
            rules = os.path.join(folder, "rules.json")
            for text, part in (("{", "byte"), ('{"rules": [{"tag": "x"}]}', "rule 1"),
                               ('{"rools": []}', "rools")):
                with open(rules, "w") as file:
                    file.write(text)
                self.assert_one_line(("--rules", rules, "x.pb"), 1, rules, part)

    def test_help_and_version_are_for_standard_output(self):
        self.assertIn("usage: dstrace-report", run("--help").stdout)
        self.assertRegex(run("--version").stdout, r"^dstrace-report \d+\.\d+\.\d+\n$")


@unittest.skipUnless(SAMPLES, "no samples here")
class Samples(unittest.TestCase):
    def test_every_sample_has_a_report_of_every_kind(self):
        for sample in SAMPLES:
            text = run(sample)
            self.assertEqual((text.returncode, text.stderr), (0, ""), sample)
            self.assertLessEqual(max(map(len, text.stdout.splitlines())), 100, sample)
            report = json.loads(run(sample, "--format", "json").stdout)
            self.assertEqual(report["schema"], "dstrace.report/1")
            folded = run(sample, "--format=folded").stdout.splitlines()
            self.assertTrue(all(int(line.rsplit(" ", 1)[1]) > 0 for line in folded), sample)
            xml.dom.minidom.parseString(run(sample, "--format=svg").stdout.encode())

    def test_folded_adds_up_to_the_device_use(self):
        for sample in SAMPLES:
            report = json.loads(run(sample, "--format", "json").stdout)
            used = sum(snapshot["ledger"]["device_used"] for device in report["devices"]
                       for snapshot in device["snapshots"]
                       if device["index"] >= 0 and snapshot["name"] == "peak" and snapshot["ledger"]["residual"] >= 0)
            folded = run(sample, "--format=folded").stdout.splitlines()
            if used:
                self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in folded), used, sample)

    def test_a_reader_that_goes_away_is_no_error(self):
        process = subprocess.Popen([PROGRAM, "--format=json", SAMPLES[0]],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()
        self.assertEqual(process.wait(), 0)

    def test_several_files_end_with_a_table_of_all(self):
        result = run(SAMPLES[0], SAMPLES[0])
        self.assertIn("All processes", result.stdout)
        self.assertEqual(len(json.loads(run(SAMPLES[0], SAMPLES[0], "--format=json").stdout)), 2)

    def test_output_goes_to_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.txt")
            self.assertEqual(run(SAMPLES[0], "-o", out).stdout, "")
            with open(out) as file:
                self.assertEqual(file.read(), run(SAMPLES[0]).stdout)
        bad = run(SAMPLES[0], "-o", "/nonexistent/out.txt")
        self.assertEqual(bad.returncode, 1)
        self.assertIn("/nonexistent/out.txt", bad.stderr)

    def test_an_instant_outside_the_trace_is_an_error_naming_it(self):
        for at in ("999999s", "mark:there-is-no-such-mark"):
            result = run(SAMPLES[0], "--at", at)
            self.assertEqual((result.returncode, len(result.stderr.splitlines())), (1, 1))


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
