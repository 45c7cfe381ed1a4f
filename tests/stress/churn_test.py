# SPDX-License-Identifier: Apache-2.0
"""Libraries that come and go at the same address: no event has a name of code
that was there before."""
import json
import os
import unittest

import harness

PROGRAM = os.environ["STRESS_CHURN"]
LIBRARIES = [os.environ["STRESS_CHURN_A"], os.environ["STRESS_CHURN_B"]]
ROUNDS = 2000 if os.environ.get("DSTRACE_STRESS") else 200
UNIT = 512
STAYS = 333 * 1000 * UNIT + 7


class Churn(harness.EndToEnd):
    def expected(self, size):
        """The names from our code that the stack of this size must have."""
        if size == STAYS:
            return ["ChurnStays"]
        letter = "A" if size // UNIT % 2 == 1 else "B"
        return ["ChurnInner" + letter, "ChurnOuter" + letter, "main"]

    def own(self, names):
        return [name for name in names if name.startswith("Churn") or name == "main"]

    def churn(self, **variables):
        run = self.run_program([PROGRAM, str(ROUNDS)] + LIBRARIES, **variables)
        self.assert_clean(run)
        # Otherwise nothing is tested.
        self.assertGreater(int(run.stdout), ROUNDS // 2)
        return run

    def test_every_stack_has_the_names_of_the_library_that_was_there(self):
        run = self.churn()
        trace = self.only_trace(run)
        events = trace.allocations() + [event for event in trace.tensors if event["kind"] == "alloc"]
        stay = [event for event in events if event["size"] == STAYS]
        self.assertEqual(len(events) - len(stay), 2 * 6 * ROUNDS)
        self.assertGreater(len(stay), 0)
        for event in events:
            self.assertEqual(self.own(trace.names(event["stack"])),
                             self.expected(event["size"]), event)
        self.assertEqual([loss for loss in trace.losses if loss["count"]], [])

    def test_so_does_every_row_of_the_report(self):
        run = self.churn(DSTRACE_LOG_LIMIT="4MiB")
        process = self.report(run.logs[0], "--format", "json", "--stacks", "--top", "100000")
        self.assertEqual(process.returncode, 0, process.stderr)
        seen = set()
        for device in json.loads(process.stdout)["devices"]:
            for row in device["holders"]:
                names = self.own([frame["function"] for frame in row.get("stack", [])])
                letters = {name[-1] for name in names if name[:-1] in ("ChurnInner", "ChurnOuter")}
                self.assertLess(len(letters), 2, names)
                seen |= letters
        self.assertEqual(seen, {"A", "B"})


if __name__ == "__main__":
    harness.main()
