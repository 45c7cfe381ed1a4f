# SPDX-License-Identifier: Apache-2.0
"""Beside other people's preloads, allocators, sanitizers, and where no preload may be."""
import glob
import os
import re
import shutil
import subprocess

import harness

PAIRS = 20
SANITIZED = {"address": os.environ.get("E2E_ASAN_WORKLOAD", ""),
             "thread": os.environ.get("E2E_TSAN_WORKLOAD", "")}
RUNTIMES = {"address": os.environ.get("E2E_ASAN_RUNTIME", ""),
            "thread": os.environ.get("E2E_TSAN_RUNTIME", "")}


def library(pattern):
    """A shared library of the system, or None."""
    for folder in ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib",
                   "/usr/local/lib"):
        found = sorted(glob.glob(os.path.join(folder, pattern)))
        if found:
            return found[0]
    return None


class Others(harness.EndToEnd):
    def check(self, preload, program=harness.WORKLOAD, **variables):
        run = self.run_program([program, "pairs", str(PAIRS)], LD_PRELOAD=preload, **variables)
        self.assert_clean(run)
        self.assertEqual(run.stdout, "done\n")
        self.assertEqual(len(self.only_trace(run).allocations()), PAIRS)
        for log in run.logs:
            os.unlink(log)

    def check_allocator(self, pattern):
        other = library(pattern)
        if other is None:
            self.skipTest("no %s" % pattern)
        self.check(harness.PRELOAD + ":" + other)
        self.check(other + ":" + harness.PRELOAD)

    def test_jemalloc_before_and_after_us(self):
        self.check_allocator("libjemalloc.so.*")

    def test_tcmalloc_before_and_after_us(self):
        self.check_allocator("libtcmalloc_minimal.so.?")

    def sanitized(self, kind):
        if not SANITIZED[kind] or not os.path.isabs(RUNTIMES[kind]):
            self.skipTest("the compiler has no -fsanitize=" + kind)
        return SANITIZED[kind], RUNTIMES[kind]

    def test_a_host_under_address_sanitizer_whose_runtime_comes_first(self):
        program, runtime = self.sanitized("address")
        options = {"ASAN_OPTIONS": "detect_leaks=0"}
        self.check(runtime + ":" + harness.PRELOAD, program, **options)
        # Or ASan is told not to insist on being first.
        options["ASAN_OPTIONS"] += ":verify_asan_link_order=0"
        self.check(harness.PRELOAD, program, **options)

    def test_a_host_under_thread_sanitizer(self):
        program, runtime = self.sanitized("thread")
        self.check(harness.PRELOAD, program)
        self.check(runtime + ":" + harness.PRELOAD, program)

    def open_plugin(self, how, *more, plugin=os.environ["E2E_PLUGIN"], **variables):
        run = self.run_program([os.environ["E2E_DEEP_PROGRAM"], plugin, how] + list(more),
                               **variables)
        self.assertEqual((run.status, run.stderr), (0, ""))
        return run

    def test_a_library_that_binds_past_us_is_named(self):
        for how in ("now", "lazy"):
            with self.subTest(how=how):
                run = self.open_plugin(how)
                self.assertEqual(run.stdout, "done\n")
                lost, = [loss for loss in self.only_trace(run).losses if loss["count"]]
                self.assertEqual((lost["cause"], lost["count"]), (8, 1))
                text = " ".join(self.report(run.logs[0]).stdout.split())
                self.assertIn("LOST: 1 x bypassed (libe2e_plugin.so is open with RTLD_DEEPBIND; "
                              "not seen there: ", text)
                self.assertIn("cudaMalloc", text)
                # The runtime was there before: below it, at the driver, all is seen.
                sizes = [event["size"] for event in self.only_trace(run).allocations()]
                self.assertEqual(sizes, [512, 4096, 1024])
                os.unlink(run.logs[0])

    def run_deep(self, before, **variables):
        program = ("import ctypes, os, sys; c = ctypes.CDLL('libcudart.so.13') if %r else None; "
                   "block = ctypes.byref(ctypes.c_void_p()); "
                   "c and c.cudaMalloc(block, ctypes.c_size_t(512)); "
                   "deep = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_DEEPBIND); "
                   "assert deep.plugin_pair(ctypes.c_size_t(4096)) == 0; "
                   "c and c.cudaMalloc(block, ctypes.c_size_t(512))" % before)
        return self.run_program([harness.PYTHON, "-c", program,
                                 os.environ["E2E_STATIC_PLUGIN" if before else "E2E_PLUGIN"]],
                                **variables)

    def test_a_runtime_of_its_own_that_binds_past_us_is_named(self):
        run = self.run_deep(before=True)
        self.assert_clean(run)
        text = " ".join(self.report(run.logs[0]).stdout.split())
        self.assertIn("LOST: 1 x bypassed (libe2e_static_plugin.so is open with RTLD_DEEPBIND; "
                      "not seen there: dlsym)", text)
        self.assertEqual([event["size"] for event in self.only_trace(run).allocations()],
                         [512, 512])

    def test_a_program_whose_only_cuda_is_past_us_says_so_at_its_end(self):
        run = self.run_deep(before=False)
        self.assertEqual((run.status, run.logs), (0, []))
        self.assertRegex(run.stderr, r"\Adstrace: libe2e_plugin\.so is open with RTLD_DEEPBIND; "
                                     r"not seen there: cuda\w+, cuda\w+\n")
        self.assertEqual(self.run_deep(before=False, DSTRACE_QUIET=1).stderr, "")

    def test_a_library_opened_plainly_is_seen(self):
        run = self.open_plugin("plain")
        trace = self.only_trace(run)
        self.assertEqual([event["size"] for event in trace.allocations()], [512, 4096, 1024])
        self.assertEqual([loss for loss in trace.losses if loss["count"]], [])

    def test_the_loaders_answers_are_its_own(self):
        for plugin in ("/no/such/library.so", "libnosuch.so"):
            bare = self.open_plugin("now", "missing", plugin=plugin, LD_PRELOAD=None)
            traced = self.open_plugin("now", "missing", plugin=plugin)
            self.assertIn(plugin, bare.stdout)
            self.assertEqual(traced.stdout, bare.stdout)

    def test_a_librarys_own_allocator_is_seen_under_its_name(self):
        # As torch.cuda.memory.CUDAPluggableAllocator does: by path and by name.
        program = ("import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); "
                   "alloc = library.plugin_alloc; alloc.restype = ctypes.c_void_p; "
                   "alloc.argtypes = (ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p); "
                   "free = library.plugin_free; "
                   "free.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p); "
                   "blocks = [alloc(size, 0, None) for size in (512, 1024, 2048)]; "
                   "free(blocks[1], 1024, 0, None)")
        run = self.run_program([harness.PYTHON, "-c", program, os.environ["E2E_PLUGIN"]])
        self.assert_clean(run)
        trace = self.only_trace(run)
        self.assertEqual([event["size"] for event in trace.allocations()], [512, 1024, 2048])
        for event in trace.allocations():
            self.assertEqual(trace.names(event["stack"])[0], "plugin_alloc")
        self.assertIn("e2e_plugin's own memory", self.report(run.logs[0]).stdout)

    def test_another_libstdcxx_in_front_of_us_and_behind(self):
        other = os.environ.get("DSTRACE_OTHER_LIBSTDCXX") or library("libstdc++.so.6")
        if other is None:
            self.skipTest("no libstdc++")
        copy = os.path.join(self.scratch, "libstdc++.so.6")
        shutil.copy(other, copy)
        self.check(harness.PRELOAD + ":" + copy)
        self.check(copy + ":" + harness.PRELOAD)
        # Only libc and the loader: whichever the program has is its own affair.
        listed = subprocess.run(["readelf", "--dyn-syms", "--wide", harness.PRELOAD],
                                stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
        wanted = [line for line in listed.splitlines() if " UND " in line]
        self.assertGreater(len(wanted), 10)
        self.assertEqual([line for line in wanted
                          if re.search(r"GLIBCXX|CXXABI|GCC_|_ZNSt|_ZSt|_Unwind", line)], [])

    def test_a_setuid_program_runs_without_us(self):
        setpriv = shutil.which("setpriv")
        if os.geteuid() != 0 or setpriv is None:
            self.skipTest("needs root and setpriv")
        program = os.path.join(self.scratch, "setuid")
        shutil.copy("/bin/cat", program)
        os.chown(program, 1, 1)
        os.chmod(program, 0o4755)
        for folder in (self.scratch, self.directory):
            os.chmod(folder, 0o755)
        # Seen from inside: its own list of mapped files.
        command = [setpriv, "--reuid=65534", "--clear-groups", program, "/proc/self/maps"]
        run = self.run_program(command, LD_PRELOAD=None)
        if run.status != 0:
            self.skipTest("setuid programs cannot run here: " + run.stderr)
        traced = self.run_program(command)
        self.assertEqual(traced.status, 0, traced.stderr)
        self.assertNotIn("libdstrace", traced.stdout)
        self.assertEqual(traced.logs, [])


if __name__ == "__main__":
    harness.main()
