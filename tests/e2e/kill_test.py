# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at random instants: every log reads, and holds each event that the
program had seen finished."""
import os
import random
import struct
import subprocess
import time
import unittest

import harness
import trace_reader

KILLS = 200
MAX_DELAY = 0.004  # seconds after the program's first line, or its first event


def size_of(i):
    return 512 * (i % 1000 + 1)


class Kill(harness.EndToEnd):
    def acknowledged(self, ack, threads):
        try:
            with open(ack, "rb") as file:
                return struct.unpack("<%dQ" % threads, file.read(8 * threads))
        except (OSError, struct.error):
            return (0,) * threads

    def kill_at_random(self, threads, delay, after_an_event):
        """The acknowledged calls of each thread, and the log."""
        for name in os.listdir(self.directory):
            os.unlink(os.path.join(self.directory, name))
        ack = os.path.join(self.scratch, "ack")
        if os.path.exists(ack):
            os.unlink(ack)
        process = self.start([harness.WORKLOAD, "forever", "0", str(threads)], E2E_ACK=ack)
        self.assertEqual(process.stdout.readline(), "go\n")
        deadline = time.monotonic() + harness.TIMEOUT
        while after_an_event and not any(self.acknowledged(ack, threads)):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.0005)
        time.sleep(delay)
        process.kill()
        _, stderr = process.communicate()
        self.assertEqual(stderr, "")
        counts = self.acknowledged(ack, threads)
        logs = [os.path.join(self.directory, name) for name in os.listdir(self.directory)]
        self.assertLessEqual(len(logs), 1)
        # Killed before there was anything to keep, even between open() and the
        # first chunk.
        if not logs or os.path.getsize(logs[0]) == 0:
            self.assertEqual(sum(counts), 0, "events, but no log")
            return counts, None
        return counts, logs[0]

    def check_thread(self, events, acknowledged):
        """`events` of one thread: a prefix of alloc, free, alloc, free, ..."""
        self.assertGreaterEqual(len(events), acknowledged)
        # One more may have been recorded and not yet acknowledged.
        self.assertLessEqual(len(events), acknowledged + 1)
        for i, event in enumerate(events):
            self.assertEqual(event["kind"], 2 if i % 2 else 1)
            if i % 2:
                self.assertEqual(event["address"], events[i - 1]["address"])
            else:
                self.assertEqual(event["size"], size_of(i // 2))

    def test_no_acknowledged_event_is_lost_in_200_kills(self):
        dice = random.Random(20)
        total = with_log = 0
        for kill in range(KILLS):
            threads = (1, 1, 2, 4)[kill % 4]
            # One in five anywhere from the start on, the others while recording.
            counts, log = self.kill_at_random(
                threads, dice.uniform(0, MAX_DELAY), after_an_event=kill % 5 != 0)
            if log is None:
                continue
            with self.subTest(kill=kill, threads=threads, acknowledged=counts):
                trace = trace_reader.read_trace(log)
                by_thread = {}
                for event in trace.events:
                    if event["kind"] in (1, 2):
                        by_thread.setdefault(event["thread"], []).append(event)
                        trace.frames_of(event["stack"])  # KeyError: undefined
                # Which kernel thread had which slot is not known: by length.
                logged = sorted(by_thread.values(), key=len)
                logged = [[]] * (threads - len(logged)) + logged
                for events, acknowledged in zip(logged, sorted(counts)):
                    self.check_thread(events, acknowledged)
                report = subprocess.run([harness.REPORT, log], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, universal_newlines=True)
                self.assertEqual((report.returncode, report.stderr), (0, ""))
                with_log += 1
                total += sum(counts)
        print("%d kills, %d with a log, %d acknowledged events" % (KILLS, with_log, total))
        # Else the instants were not random over recording, and proved little.
        self.assertGreater(with_log, KILLS // 2)


if __name__ == "__main__":
    harness.main()
