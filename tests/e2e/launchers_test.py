# SPDX-License-Identifier: Apache-2.0
"""Jobs of two ranks under torchrun, deepspeed and mpirun: a log for each rank and none for the launcher.

torchrun and deepspeed need an interpreter that can import them (DSTRACE_TORCH_PYTHON, PYTHONPATH)."""
import os
import re
import shutil
import socket
import subprocess
import unittest

import harness
import trace_reader

PYTHON = harness.python_with("torch")
RANK = os.path.join(harness.PROGRAMS, "rank.py")
HAS_DEEPSPEED = PYTHON is not None and subprocess.run(
    [PYTHON, "-c", "import deepspeed.launcher.runner"], stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL, env=dict(os.environ, DS_ACCELERATOR="cpu")).returncode == 0


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


class Launchers(harness.EndToEnd):
    def run_job(self, command, **variables):
        # CUDA's fakes without PyTorch's, which would stand in for the real one.
        fakes = os.path.join(self.scratch, "cuda")
        os.mkdir(fakes)
        for name in ("libcudart.so.13", "libcuda.so.1"):
            os.symlink(os.path.join(harness.FAKES, name), os.path.join(fakes, name))
        # One thread each: the launchers would choose so, and say it.
        run = self.run_program(command, LD_LIBRARY_PATH=fakes, OMP_NUM_THREADS=1, **variables)
        self.assertEqual(run.status, 0, run.stderr[-2000:] + run.stdout[-1000:])
        self.assertNotIn("dstrace:", run.stderr)
        return run

    def assert_two_ranks(self, run):
        self.assertEqual(len(run.logs), 2, (run.logs, run.stderr[-1000:]))
        for rank, log in enumerate(run.logs):
            with self.subTest(rank=rank):
                self.assertRegex(os.path.basename(log), r"-%d-\d+\.pb$" % rank)
                self.assertEqual(len(trace_reader.read_trace(log).allocations()), rank + 2)
                report = self.report_json(log)
                self.assertEqual((report["process"]["rank"], report["process"]["world_size"]),
                                 (rank, 2))
                text = self.report(log).stdout
                self.assertIn("rank %d of 2" % rank, text)
                self.assertIn("; ended: exit status 0", " ".join(text.split()))

    def assert_only_rank_0(self, run):
        self.assertEqual([re.sub(r"\d+\.pb$", "", os.path.basename(log)) for log in run.logs],
                         ["dstrace-%s-0-" % os.uname().nodename])


@unittest.skipUnless(PYTHON, "no Python with torch")
class Torchrun(Launchers):
    def command(self):
        return [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", RANK,
                "gloo"]

    def test_each_rank_has_a_log(self):
        self.assert_two_ranks(self.run_job(self.command()))

    def test_rank0_alone_when_asked(self):
        self.assert_only_rank_0(self.run_job(self.command(), DSTRACE_FOLLOW="rank0"))


@unittest.skipUnless(HAS_DEEPSPEED, "no Python with deepspeed")
class Deepspeed(Launchers):
    def test_each_rank_has_a_log(self):
        self.assert_two_ranks(self.run_job(
            [PYTHON, "-m", "deepspeed.launcher.runner", "--num_gpus=2", "--master_addr=127.0.0.1",
             "--master_port=" + free_port(), "--no_local_rank", RANK, "gloo"],
            DS_ACCELERATOR="cpu"))


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun")
class Mpirun(Launchers):
    AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": 1, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1}

    def command(self):
        return ["mpirun", "-np", "2", "--oversubscribe", harness.PYTHON, RANK]

    def test_each_rank_has_a_log(self):
        self.assert_two_ranks(self.run_job(self.command(), **self.AS_ROOT))

    def test_rank0_alone_when_asked(self):
        self.assert_only_rank_0(
            self.run_job(self.command(), DSTRACE_FOLLOW="rank0", **self.AS_ROOT))


if __name__ == "__main__":
    harness.main()
