# SPDX-License-Identifier: Apache-2.0
"""The header checker finds what is neither hooked nor waived."""
import os
import subprocess
import sys
import tempfile
import unittest

CHECKER = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "check_headers.py")


class CheckHeaders(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def check(self, driver, runtime=""):
        for name, text in (("cuda.h", "#define CUDA_VERSION 12040\n" + driver),
                           ("cuda_runtime_api.h", runtime)):
            with open(os.path.join(self.folder.name, name), "w") as file:
                file.write(text)
        return subprocess.run(
            [sys.executable, CHECKER, self.folder.name], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, universal_newlines=True)

    def test_what_is_hooked_or_waived_or_no_memory_passes(self):
        done = self.check("CUresult CUDAAPI cuMemAlloc(int);\n"
                          "CUresult CUDAAPI cuMemSetAccess(int);\n"
                          "CUresult CUDAAPI cuStreamSynchronize(int);\n")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("CUDA 12.4: 1 hooked, 1 waived", done.stdout)
        self.assertIn("makes mapped memory visible", done.stdout)

    def test_a_new_allocator_is_a_fault(self):
        done = self.check("CUresult CUDAAPI cuMemAllocBrandNew(int);\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cuMemAllocBrandNew (CUDA 12.4) is neither hooked nor waived", done.stdout)

    def test_a_new_version_of_a_hooked_function_is_a_fault(self):
        done = self.check("#define cuMemAlloc cuMemAlloc_v9\n"
                          "CUresult CUDAAPI cuMemAlloc(int);\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cuMemAlloc_v9", done.stdout)

    def test_a_new_per_thread_stream_twin_is_a_fault(self):
        done = self.check("", "#define cudaMallocHost __CUDART_API_PTSZ(cudaMallocHost)\n"
                              "cudaError_t CUDARTAPI cudaMallocHost(int);\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cudaMallocHost_ptsz", done.stdout)

    def test_a_function_that_only_a_comment_names_is_none(self):
        done = self.check("/* CUresult CUDAAPI cuMemAllocOld(int); */\n")
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
