# SPDX-License-Identifier: Apache-2.0
"""dstrace compact and a log whose process lives, and one whose process was killed."""
import os
import subprocess
import time

import harness


def report(*words):
    return subprocess.run([harness.REPORT] + list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=harness.TIMEOUT, check=False)


class Compact(harness.EndToEnd):
    def test_a_log_that_is_being_written_is_left_alone_and_compacted_after_a_kill(self):
        log = os.path.join(self.directory, "run.pb")
        process = self.start([harness.WORKLOAD, "forever", "0", "1"], DSTRACE_OUTPUT=log,
                             E2E_ACK=os.path.join(self.scratch, "ack"))
        self.assertEqual(process.stdout.readline(), "go\n")
        deadline = time.monotonic() + harness.TIMEOUT
        while report(log).returncode != 0:
            self.assertLess(time.monotonic(), deadline)
        refused = report("compact", log, "--remove")
        process.kill()
        process.communicate()

        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertEqual(refused.stderr, "dstrace compact: %s: is still being written by process %d; compact it when "
                                         "that has ended\n" % (log, process.pid))
        self.assertEqual(os.listdir(self.directory), ["run.pb"])

        before = report(log)
        compacted = report("compact", log, "--remove")
        self.assertEqual((compacted.returncode, compacted.stderr), (0, ""))
        self.assertEqual(os.listdir(self.directory), ["run.pb.zst"])
        self.assertEqual(report(log + ".zst").stdout, before.stdout)
        self.assertIn("killed", before.stdout)


if __name__ == "__main__":
    harness.main()
