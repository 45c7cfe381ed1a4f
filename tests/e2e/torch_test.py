# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch on the CPU: each tensor is in the log, under the Python line
that made it. Needs an interpreter that can import torch: DSTRACE_TORCH_PYTHON,
or one of those that the other tests use."""
import json
import os
import unittest

import harness

PYTHON = harness.python_with("torch")
SWITCH = os.environ["E2E_TORCH_SWITCH"]
if PYTHON is None:
    harness.skip_all("no Python with torch (set DSTRACE_TORCH_PYTHON, or install python3-torch)")


class Torch(harness.EndToEnd):
    @classmethod
    def setUpClass(cls):
        """torch takes seconds to import: one run for all."""
        case = cls("run_once")
        case.setUp()
        cls.addClassCleanup(case.doCleanups)
        program = os.path.join(harness.PROGRAMS, "torch_tensors.py")
        cls.run_of = case.run_program(
            [PYTHON, program], LD_PRELOAD="%s:%s" % (harness.PRELOAD, SWITCH),
            LD_LIBRARY_PATH=None)
        case.assertEqual(cls.run_of.status, 0, cls.run_of.stderr)
        cls.trace = case.only_trace(cls.run_of)
        told = json.loads(cls.run_of.stdout.splitlines()[-1])
        cls.made = {int(size): stack for size, stack in told["made"].items()}
        cls.kept = told["kept"]
        # An allocator may round sizes up.
        cls.allocs = [tensor for tensor in cls.trace.tensors if tensor["kind"] == "alloc"]

    def run_once(self):
        pass

    def of_size(self, size):
        return [tensor for tensor in self.allocs if size <= tensor["size"] < size + 64]

    def test_every_tensor_is_recorded_once(self):
        self.assertEqual(len(self.made), 10)
        for size in self.made:
            self.assertEqual(len(self.of_size(size)), 1, size)

    def test_under_the_python_lines_that_made_it(self):
        for size, stack in self.made.items():
            tensor, = self.of_size(size)
            frames = [frame for frame in self.trace.frames_of(tensor["stack"])
                      if frame["kind"] == 1]
            logged = [[self.trace.text(frame["name"]), frame["line"]] for frame in frames]
            self.assertEqual(logged, stack)

    def test_the_native_frames_reach_into_torch(self):
        tensor, = self.of_size(next(iter(self.made)))
        names = self.trace.names(tensor["stack"])
        self.assertTrue(any("torch" in name or "2at" in name for name in names), names)

    def test_what_was_freed_before_the_next_tensor_is_freed_in_the_log(self):
        live = {}
        freed = set()
        for tensor in sorted(self.trace.tensors, key=lambda tensor: tensor["time"]):
            if tensor["kind"] == "alloc":
                self.assertNotIn(tensor["address"], live)
                live[tensor["address"]] = tensor["size"]
            else:
                freed.add(live.pop(tensor["address"], 0))
        for size in self.made:
            rounded = self.of_size(size)[0]["size"]
            if size not in self.kept:
                self.assertIn(rounded, freed)

    def test_torch_s_version_is_known(self):
        self.assertIn("torch.version", self.trace.properties)


if __name__ == "__main__":
    harness.main()
