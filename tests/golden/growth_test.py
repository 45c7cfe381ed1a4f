# SPDX-License-Identifier: Apache-2.0
"""What CUDA takes for itself gets a line of the ledger, end to end over the fake driver.

  growth_test.py LIBDSTRACE DSTRACE_REPORT FOLDER_OF_FAKES
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PRELOAD, REPORT, FAKES = sys.argv[1:4]
MIB = 1 << 20
# In the fake: a context 304 MiB, a module 1, a kernel's code 2 and its local memory 4, the first stream 8.
PROGRAM = """
import ctypes
runtime, driver = ctypes.CDLL("libcudart.so.13"), ctypes.CDLL("libcuda.so.1")
new = lambda: ctypes.byref(ctypes.c_void_p())
pointer, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(64 << 20)) == 0
assert driver.cuModuleLoadData(ctypes.byref(module), b"image") == 0
assert driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"kernel") == 0
for _ in range(3):
    assert driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
assert driver.cuStreamCreate(new(), 0) == 0
assert driver.cuStreamCreate(new(), 0) == 0
"""


class Growth(unittest.TestCase):
    def last_ledger(self, **environment):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "run.pb")
            env = dict(os.environ, LD_PRELOAD=PRELOAD, LD_LIBRARY_PATH=FAKES, DSTRACE_OUTPUT=trace, **environment)
            subprocess.run([sys.executable, "-c", PROGRAM], env=env, check=True)
            lines = subprocess.run([REPORT, trace, "--format", "ledgers"], capture_output=True, text=True, check=True)
        return json.loads(lines.stdout.splitlines()[-1])["ledger"]

    def test_code_local_memory_and_streams_leave_nothing_unexplained(self):
        ledger = self.last_ledger()
        self.assertEqual(ledger["code"], 15 * MIB)
        self.assertEqual(ledger["context"], 304 * MIB)
        self.assertFalse(ledger["context_includes_others"])
        self.assertEqual(ledger["unexplained"], 0)
        self.assertEqual(ledger["device_used"], (64 + 15 + 304) * MIB)

    def test_without_nvml_the_context_line_says_that_others_are_in_it(self):
        ledger = self.last_ledger(FAKE_NVML="missing")
        self.assertTrue(ledger["context_includes_others"])
        self.assertEqual((ledger["code"], ledger["unexplained"]), (15 * MIB, 0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
