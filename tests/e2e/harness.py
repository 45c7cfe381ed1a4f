# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: running a program under the preload in a
directory of its own, against the fake CUDA, and reading what it left.

ctest sets E2E_PRELOAD, E2E_REPORT, E2E_WORKLOAD and E2E_FAKES (paths), and
E2E_PYTHON where a test is run once per interpreter.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

import trace_reader

PRELOAD = os.environ["E2E_PRELOAD"]
REPORT = os.environ["E2E_REPORT"]
WORKLOAD = os.environ["E2E_WORKLOAD"]
FAKES = os.environ["E2E_FAKES"]
PYTHON = os.environ.get("E2E_PYTHON", sys.executable)
HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "python")
TIMEOUT = 120


class Run:
    """A finished process: status, stdout, stderr, and the logs it left."""

    def __init__(self, process, directory):
        self.status = process.returncode
        self.stdout, self.stderr = process.stdout, process.stderr
        # Whatever it left in its working directory.
        self.logs = sorted(glob.glob(os.path.join(directory, "*")))


class EndToEnd(unittest.TestCase):
    maxDiff = 4000

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="dstrace-e2e-")
        self.addCleanup(directory.cleanup)
        self.scratch = directory.name
        self.directory = os.path.join(self.scratch, "work")
        os.mkdir(self.directory)

    def environment(self, preload=True, **variables):
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith(("DSTRACE_", "E2E_", "LD_"))}
        environment["LD_LIBRARY_PATH"] = FAKES
        environment["E2E_FAKES"] = FAKES
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        if preload:
            environment["LD_PRELOAD"] = PRELOAD
        for key, value in variables.items():
            environment.pop(key, None)
            if value is not None:
                environment[key] = str(value)
        return environment

    def start(self, command, **variables):
        return subprocess.Popen(
            command, cwd=self.directory, env=self.environment(**variables),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            universal_newlines=True)

    def run_program(self, command, **variables):
        process = subprocess.run(
            command, cwd=self.directory, env=self.environment(**variables),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            universal_newlines=True, timeout=TIMEOUT)
        return Run(process, self.directory)

    def run_workload(self, *arguments, **variables):
        return self.run_program([WORKLOAD] + [str(word) for word in arguments], **variables)

    def run_python(self, program, *arguments, **variables):
        return self.run_program(
            [PYTHON, os.path.join(PROGRAMS, program)] + list(arguments), **variables)

    def only_trace(self, run):
        self.assertEqual(len(run.logs), 1, (run.logs, run.stdout, run.stderr))
        return trace_reader.read_trace(run.logs[0])

    def trace_of_pid(self, run, pid):
        for log in run.logs:
            trace = trace_reader.read_trace(log)
            if trace.header["pid"] == pid:
                return trace
        raise AssertionError("no log of process %d in %s" % (pid, run.logs))

    def report(self, log, *options):
        return subprocess.run(
            [REPORT, log] + list(options), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            universal_newlines=True, timeout=TIMEOUT)

    def report_json(self, log):
        process = self.report(log, "--format", "json")
        self.assertEqual(process.returncode, 0, process.stderr)
        return json.loads(process.stdout)

    def assert_clean(self, run, status=0):
        """The traced program did what it would have done alone."""
        self.assertEqual((run.status, run.stderr), (status, ""), run.stdout[-500:])


def python_with(module):
    """An interpreter that finds `module`: DSTRACE_TORCH_PYTHON, this one or pyenv's; or None."""
    candidates = [os.environ.get("DSTRACE_TORCH_PYTHON"), sys.executable]
    candidates += sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python")))
    find = "import importlib.util as u, sys; sys.exit(u.find_spec(%r) is None)" % module
    for python in candidates:
        if not python or not os.access(python, os.X_OK):
            continue
        if subprocess.run([python, "-c", find], stderr=subprocess.DEVNULL).returncode == 0:
            return python
    return None


def skip_all(reason):
    """For a whole file that cannot run here: ctest shows it as skipped."""
    print("SKIP: " + reason)
    sys.exit(77)


def main():
    unittest.main(verbosity=2)
