# SPDX-License-Identifier: Apache-2.0
"""Many threads at once, and many threads one after another."""
import collections
import os

import harness

CHUNK = 65536


class Threads(harness.EndToEnd):
    def test_64_threads_at_once_lose_nothing(self):
        run = self.run_workload("threads", 400, 64)

        self.assert_clean(run)
        trace = self.only_trace(run)
        per_thread = collections.Counter(event["thread"] for event in trace.allocations())
        self.assertEqual(sorted(per_thread.values()), [400] * 64)
        for thread in per_thread:
            mine = [event for event in trace.events
                    if event["thread"] == thread and event["kind"] in (1, 2)]
            self.assertEqual([event["address"] for event in mine[::2]],
                             [event["address"] for event in mine[1::2]])

    def test_first_events_at_the_same_instant_open_one_log(self):
        for _ in range(60):
            run = self.run_workload("threads", 2, 8)
            self.assert_clean(run)
            self.assertEqual(len(self.only_trace(run).allocations()), 16)
            os.unlink(run.logs[0])

    def test_no_address_is_live_twice(self):
        run = self.run_workload("threads", 400, 16)

        live = set()
        events = [event for event in self.only_trace(run).events if event["kind"] in (1, 2)]
        for event in sorted(events, key=lambda event: event["time"]):
            if event["kind"] == 1:
                self.assertNotIn(event["address"], live)
                live.add(event["address"])
            else:
                live.remove(event["address"])
        self.assertEqual(live, set())

    def test_10000_short_threads_do_not_waste_a_chunk_each(self):
        run = self.run_workload("short-threads", 10000)

        self.assert_clean(run)
        trace = self.only_trace(run)
        self.assertEqual(len(trace.allocations()), 10000)
        self.assertEqual(len(trace.events), 20000 + len(
            [event for event in trace.events if event["kind"] not in (1, 2)]))
        used = sum(chunk["committed"] for chunk in trace.chunks)
        # Threads follow each other: one chunk after the other is filled. A
        # chunk per thread would be 10 000 x 64 KiB.
        self.assertLess(len(trace.chunks), 4 + 2 * used // CHUNK)
        self.assertLess(trace.size, 8 << 20)


if __name__ == "__main__":
    harness.main()
