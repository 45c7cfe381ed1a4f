# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/compare.py: it agrees with a true run, and no difference gets past it."""
import copy
import json
import os
import re
import subprocess
import sys

import harness

GPU = os.path.join(os.path.dirname(harness.HERE), "gpu")
CUPTI_PROGRAM = os.environ["E2E_CUPTI_PROGRAM"]
MIB = 1 << 20


class Compare(harness.EndToEnd):
    def traced(self, name, command, **variables):
        """Runs a workload; returns its row of results.json, its trace beside under the name that compare.py expects."""
        run = self.run_program(command, **variables)
        self.assert_clean(run)
        self.assertEqual(len(run.logs), 1, run.logs)
        points = [json.loads(line.split(" ", 1)[1]) for line in run.stdout.splitlines()
                  if line.startswith("CHECKPOINT ")]
        pid = harness.trace_reader.read_trace(run.logs[0]).header["pid"]
        os.rename(run.logs[0], os.path.join(self.scratch, "%s-0-%d.pb" % (name, pid)))
        return {"name": name, "checkpoints": points}

    def driver_row(self):
        return self.traced("plain_driver", [sys.executable, os.path.join(GPU, "workloads", "plain_driver.py")])

    def compare(self, *rows, options=()):
        results = os.path.join(self.scratch, "results.json")
        with open(results, "w") as file:
            json.dump({"rows": rows}, file)
        return subprocess.run(
            [sys.executable, os.path.join(GPU, "compare.py"), "--report", harness.REPORT, *options, results, self.scratch],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)

    def test_a_program_without_torch_has_its_row(self):
        row = self.driver_row()
        self.assertEqual(len(row["checkpoints"]), 3)
        done = self.compare(row)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        line = re.search("^plain_driver .*$", done.stdout, re.M).group().split()
        self.assertEqual(line[:4], ["plain_driver", "3", "-", "-"])
        self.assertEqual(line[-5:-3], ["0.0", "0.0"])  # 117 MiB are all accounted for
        self.assertEqual(line[-3], "0")

    def test_a_residual_above_the_limit_fails(self):
        row = self.driver_row()
        row["checkpoints"][1]["driver_used"] += 100 * MIB
        done = self.compare(row)
        self.assertEqual(done.returncode, 1)
        self.assertIn(" 100.0 ", done.stdout)
        self.assertEqual(self.compare(row, options=["--no-limit"]).returncode, 0)

    def test_a_byte_of_torch_fails(self):
        row = self.driver_row()
        point = row["checkpoints"][1]
        point["devices"] = [{"device": 0, "used": point["driver_used"], "allocated": 0, "reserved": 0}]
        self.assertEqual(self.compare(row).returncode, 0)
        wrong = copy.deepcopy(row)
        wrong["checkpoints"][1]["devices"][0]["reserved"] = 1
        done = self.compare(wrong)
        self.assertEqual(done.returncode, 1)
        self.assertIn("torch says reserved 1, the model 0 (-1)", done.stderr)
        self.assertIn("0 of 1", done.stdout)

    def test_cupti_stands_beside_the_hooks(self):
        row = self.traced("cupti_plain", [CUPTI_PROGRAM, "plain"], DSTRACE_CUPTI="1")
        done = self.compare(row)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertRegex(done.stdout, r"cupti_plain .* 2, 3\.0 +2, 3\.0 ")

    def test_what_only_cupti_saw_fails(self):
        row = self.traced("cupti_missed", [CUPTI_PROGRAM, "missed"], DSTRACE_CUPTI="1")
        done = self.compare(row)
        self.assertEqual(done.returncode, 1)
        self.assertIn("CUPTI says device", done.stderr)

    def test_nothing_to_compare_fails(self):
        done = self.compare({"name": "absent", "checkpoints": []})
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing to compare", done.stderr)


if __name__ == "__main__":
    harness.main()
