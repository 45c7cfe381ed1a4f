# SPDX-License-Identifier: Apache-2.0
"""DSTRACE_LOG_LIMIT: disk and memory stay bounded, and what is live at the end
is what an unlimited run of the same program has, stack by stack.

E2E_LIMIT_EVENTS and E2E_LIMIT set the size; `100000000 256MiB` is the run of
docs/design/0005-bounded-logs.md.
"""
import json
import os
import time
import unittest

import harness

DRIVER = os.environ["E2E_LIMIT_DRIVER"]
EVENTS = int(os.environ.get("E2E_LIMIT_EVENTS", "2000000"))
LIMIT = os.environ.get("E2E_LIMIT", "4MiB")
LIMIT_BYTES = int(LIMIT[:-3]) << 20
# Of the recorder: tables, thread states, one open chunk.
MAX_EXTRA_KIB = 16 << 10


class Limit(harness.EndToEnd):
    def drive(self, **variables):
        begin = time.monotonic()
        process = self.start([DRIVER, str(EVENTS)], **variables)
        stdout, stderr = process.communicate()
        self.assertEqual((process.returncode, stderr), (0, ""))
        live, rss = (int(word) for word in stdout.split())
        return live, rss, time.monotonic() - begin

    def end_of(self, name):
        """The ledger at the end, and the live bytes by the names of the stacks."""
        log = os.path.join(self.directory, name)
        folded = self.report(log, "--at", "end", "--format", "folded")
        self.assertEqual((folded.returncode, folded.stderr), (0, ""))
        run = self.report(log, "--at", "end", "--format", "json")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        snapshots = json.loads(run.stdout)["devices"][0]["snapshots"]
        end = next(s for s in snapshots if s["name"] == "end")
        return end["ledger"], sorted(folded.stdout.splitlines()), os.path.getsize(log)

    def test_live_set_equals_the_unlimited_one_in_bounded_space(self):
        _, bare_rss, bare_time = self.drive(preload=False)
        live, rss, seconds = self.drive(DSTRACE_OUTPUT="limited.pb", DSTRACE_LOG_LIMIT=LIMIT)
        ledger, stacks, size = self.end_of("limited.pb")
        print("%d events, limit %s: %d bytes on disk, RSS +%d KiB, %.2f s (bare %.2f s)" %
              (EVENTS, LIMIT, size, rss - bare_rss, seconds, bare_time))
        text = self.report(os.path.join(self.directory, "limited.pb")).stdout
        self.assertIn("history complete since", text)
        self.assertLessEqual(size, LIMIT_BYTES)
        self.assertLess(rss - bare_rss, MAX_EXTRA_KIB)
        self.assertEqual(ledger["torch_live"], live)
        self.assertTrue(any("AllocateParameter" in line for line in stacks), stacks[:5])
        if EVENTS > 10000000:
            return  # the unlimited run would fill the disk
        self.drive(DSTRACE_OUTPUT="all.pb")
        all_ledger, all_stacks, all_size = self.end_of("all.pb")
        self.assertGreater(all_size, 2 * size)
        self.assertEqual(stacks, all_stacks)
        self.assertEqual(ledger["torch_live"], all_ledger["torch_live"])
        self.assertEqual(ledger["torch_reserved"], all_ledger["torch_reserved"])


if __name__ == "__main__":
    harness.main()
