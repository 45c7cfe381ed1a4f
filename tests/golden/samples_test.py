# SPDX-License-Identifier: Apache-2.0
"""Reports of the real traces in samples/: kept as they are, and right.

  samples_test.py DSTRACE_REPORT

Goldens are tests/golden/samples/NAME.{txt,json,folded}; DSTRACE_UPDATE_GOLDEN=1 writes them instead (read the
difference before committing it). What the zero3_mics traces must say is checked against DeepSpeed's own formulas, on
the first screen and in the JSON, whatever the goldens have.
"""
import difflib
import json
import os
import re
import subprocess
import sys
import unittest

REPORT = sys.argv.pop(1) if len(sys.argv) > 1 else ""
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GOLDEN = os.path.join(ROOT, "tests", "golden", "samples")
SAMPLES = ("torch_training", "torch_expandable", "cuda_graphs", "torch_training_nccl", "zero3_mics_load",
           "zero3_mics_initialize", "zero3_current_offload")
# Its timeline alone has megabytes.
TOO_LONG = {("zero3_current_offload", "json")}
FORMATS = {"txt": ("--format", "text"), "json": ("--format", "json", "--top", "12"), "folded": ("--format", "folded")}
# A terminal window; the reports are made for one.
SCREEN_LINES = 50
# The BLOOM-7b1 shape with tied embeddings, on two GPUs.
PARAMETERS = 7_069_016_064
N = PARAMETERS // 2
REDUCE_BUCKET = 500_000_000  # elements, two bytes each: "auto" is DeepSpeed's default


def report(name, *options):
    """As from the repository's root, so that no folder name gets into the output."""
    done = subprocess.run([REPORT, "samples/%s.pb" % name, "--color", "never", *options], cwd=ROOT,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError("%s: exit status %d\n%s" % (name, done.returncode, done.stderr))
    return done.stdout


def first_screen(name):
    """One line, so that a phrase is found wherever the lines were broken."""
    return " ".join(" ".join(report(name).splitlines()[:SCREEN_LINES]).split())


class Goldens(unittest.TestCase):
    def compare(self, name, kind):
        actual = report(name, *FORMATS[kind])
        path = os.path.join(GOLDEN, "%s.%s" % (name, kind))
        if os.environ.get("DSTRACE_UPDATE_GOLDEN"):
            os.makedirs(GOLDEN, exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(actual)
            return
        with open(path, encoding="utf-8") as file:
            expected = file.read()
        if actual != expected:
            lines = list(difflib.unified_diff(expected.splitlines(), actual.splitlines(), path, "now", lineterm="", n=0))
            self.fail("\n".join(lines[:40] + ["... %d lines differ" % len(lines)]))

    def test_every_sample_is_reported_as_before(self):
        for name in SAMPLES:
            for kind in FORMATS:
                if (name, kind) in TOO_LONG:
                    continue
                with self.subTest(sample=name, format=kind):
                    self.compare(name, kind)

    def test_two_runs_say_the_same(self):
        for kind in FORMATS:
            self.assertEqual(report(SAMPLES[0], *FORMATS[kind]), report(SAMPLES[0], *FORMATS[kind]))


class Readme(unittest.TestCase):
    def test_the_report_it_shows_is_what_is_printed_now(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            shown = file.read().split("```\ndstrace report:", 1)[1].split("\n```\n", 1)[0].splitlines()
        self.assertGreater(len(shown), 30)
        printed = report("zero3_mics_load").splitlines()
        self.assertEqual(["dstrace report:" + shown[0]] + shown[1:], printed[:len(shown)])


class Load(unittest.TestCase):
    """Loading under an outer MiCS_Init, torch 2.0's collectives emulated."""

    def test_the_first_screen_names_cache_cause_shards_and_nccl(self):
        screen = first_screen("zero3_mics_load")
        for phrase in ("torch, cached (no tensor uses it)", "wrapped_fn_to_apply -> _allgather_params",
                       "_partition_param", "NCCL", "override_module_apply"):
            self.assertIn(phrase, screen)

    def test_what_made_torch_reserve_is_the_regather(self):
        device = json.loads(report("zero3_mics_load", "--format", "json"))["devices"][0]
        first = device["growth"][0]
        self.assertIn("wrapped_fn_to_apply", first["via"] if isinstance(first["via"], str) else " ".join(first["via"]))
        self.assertGreater(first["bytes_at_peak"], 10 << 30)
        # The tied fp16 shards, beside them at most lm_head's, until it is tied, and alignment.
        shards = [h for h in device["holders"] if "_partition_param" in str(h["via"])]
        self.assertGreater(sum(h["bytes"] for h in shards), 2 * N * 0.99)

    def test_torch_agrees_to_the_byte(self):
        for name in SAMPLES:
            device = json.loads(report(name, "--format", "json"))["devices"][0]
            check = device["torch_check"]
            self.assertGreater(check["reports"], 40, name)
            self.assertEqual((check["mismatches"], check["reserved_mismatches"]), (0, 0), name)


class Initialize(unittest.TestCase):
    """deepspeed.initialize with torch.optim.AdamW, n = P / 2 parameters on each GPU."""

    EXPECTED = {
        "_create_fp32_partitions": 4 * N,
        "_optimizer_step": 8 * N,
        "_setup_for_real_optimizer": 2 * N + 2 * REDUCE_BUCKET,
    }

    def holders(self):
        device = json.loads(report("zero3_mics_initialize", "--format", "json"))["devices"][0]
        return device["holders"]

    def test_states_are_within_one_percent_of_the_formulas(self):
        for where, expected in self.EXPECTED.items():
            # The largest holder of that place: temporaries of the step are gone or small.
            found = max((h["bytes"] for h in self.holders() if where in str(h["via"])), default=0)
            self.assertAlmostEqual(found / expected, 1, delta=0.01, msg=where)

    def test_the_first_screen_names_them_with_their_bytes(self):
        screen = first_screen("zero3_mics_initialize")
        for label, expected in (("fp32 master weights", 4 * N), ("Adam states", 8 * N),
                                ("ZeRO gradient buffers", 2 * N + 2 * REDUCE_BUCKET)):
            row = re.search(r"([\d.]+) GiB\s+[\d.]+ %\s+\d+\s+[^:]+:\d+ in main " + label, screen)
            self.assertIsNotNone(row, label)
            self.assertAlmostEqual(float(row.group(1)) * (1 << 30) / expected, 1, delta=0.01, msg=label)


if __name__ == "__main__":
    unittest.main(verbosity=1)
