# SPDX-License-Identifier: Apache-2.0
"""`dstrace run` and `dstrace report`: bad usage, and what they hand on."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "dstrace")

# As installed: the launcher in bin/, the library in lib/.
PREFIX = tempfile.TemporaryDirectory(prefix="dstrace-launcher-")
os.mkdir(os.path.join(PREFIX.name, "bin"))
os.mkdir(os.path.join(PREFIX.name, "lib"))
LAUNCHER = shutil.copy(SOURCE, os.path.join(PREFIX.name, "bin"))
LIBRARY = shutil.copy(os.environ["E2E_PRELOAD"], os.path.join(PREFIX.name, "lib"))


def launch(*arguments, **variables):
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith("DSTRACE_") and key != "LD_PRELOAD"}
    environment.update(variables)
    return subprocess.run([LAUNCHER] + list(arguments), env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=60)


SHOW = [sys.executable, "-c",
        "import os; print(*['%s=%s' % (k, os.environ.get(k)) for k in "
        "('DSTRACE_OUTPUT', 'DSTRACE_STACKS', 'LD_PRELOAD')], sep='\\n')"]


class Launcher(unittest.TestCase):
    def variables_of(self, *options, **variables):
        run = launch("run", *options, "--", *SHOW, **variables)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return dict(line.split("=", 1) for line in run.stdout.splitlines())

    def test_sets_the_environment_and_becomes_the_program(self):
        seen = self.variables_of("-o", "/tmp/x-%p.pb", "--stacks", "python")
        self.assertEqual(seen["DSTRACE_OUTPUT"], "/tmp/x-%p.pb")
        self.assertEqual(seen["DSTRACE_STACKS"], "python")
        self.assertEqual(seen["LD_PRELOAD"], os.path.realpath(LIBRARY))

    def test_an_output_is_relative_to_where_it_was_started(self):
        seen = self.variables_of("--output=run.pb")
        self.assertEqual(seen["DSTRACE_OUTPUT"], os.path.join(os.getcwd(), "run.pb"))

    def test_stays_in_front_of_other_preloads(self):
        libc = "libc.so.6"
        seen = self.variables_of(LD_PRELOAD=libc)
        self.assertRegex(seen["LD_PRELOAD"], r"/libdstrace\.so:libc\.so\.6$")

    def test_hands_on_the_exit_status(self):
        self.assertEqual(launch("run", "--", "sh", "-c", "exit 7").returncode, 7)

    def assert_usage_error(self, *arguments):
        run = launch(*arguments)
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        return run.stderr

    def test_bad_usage_is_one_line_naming_the_option(self):
        for arguments, word in ((("run", "--nope", "ls"), "--nope"), (("walk",), "walk"),
                                (("run", "-o"), "-o"),
                                (("run", "--stacks", "some", "ls"), "--stacks")):
            stderr = self.assert_usage_error(*arguments)
            self.assertEqual(len(stderr.splitlines()), 1, stderr)
            self.assertIn(word, stderr)

    def test_nothing_to_run_shows_the_usage(self):
        self.assertIn("usage:", self.assert_usage_error("run"))
        self.assertIn("usage:", self.assert_usage_error())


if __name__ == "__main__":
    unittest.main(verbosity=2)
