# SPDX-License-Identifier: Apache-2.0
"""How processes start, multiply and end under the preload."""
import os
import shutil
import signal
import unittest

import harness
import trace_reader

EXIT, FAST_EXIT, SIGNAL, EXEC, ABORT = 1, 2, 3, 4, 5
ALLOC, FREE = 1, 2


def size_of(i):
    return 512 * (i % 1000 + 1)


class Recording(harness.EndToEnd):
    def test_every_call_is_in_the_log_with_its_size_address_and_order(self):
        run = self.run_workload("pairs", 1500)

        self.assert_clean(run)
        trace = self.only_trace(run)
        events = [event for event in trace.events if event["kind"] in (ALLOC, FREE)]
        self.assertEqual([event["kind"] for event in events], [ALLOC, FREE] * 1500)
        self.assertEqual([event["size"] for event in events[::2]],
                         [size_of(i) for i in range(1500)])
        self.assertEqual([event["address"] for event in events[::2]],
                         [event["address"] for event in events[1::2]])
        times = [event["time"] for event in events]
        self.assertEqual(times, sorted(times))
        self.assertEqual([loss for loss in trace.losses if loss["count"]], [])

    def test_every_tensor_is_in_the_log_however_few_there_are(self):
        for events in (0, 40, 5000):  # before the payload has any, and after it took many over
            run = self.run_program([os.environ["E2E_TENSORS_PROGRAM"], str(events)])
            self.assertEqual((run.status, run.stderr), (0, ""))
            live = {}
            for tensor in self.only_trace(run).tensors:
                if tensor["kind"] == "alloc":
                    self.assertNotIn(tensor["address"], live)
                    live[tensor["address"]] = tensor["size"]
                else:
                    self.assertEqual(live.pop(tensor["address"]), tensor["size"])
            self.assertGreater(len(live), 0)
            self.assertEqual(sum(live.values()), int(run.stdout.split()[0]))
            os.unlink(run.logs[0])

    def test_the_header_says_whose_log_it_is(self):
        run = self.run_workload("pairs", 1, RANK=3, LOCAL_RANK=1, WORLD_SIZE=8)

        header = self.only_trace(run).header
        self.assertEqual(header["command"], [harness.WORKLOAD, "pairs", "1"])
        self.assertEqual(os.path.realpath(header["executable"]),
                         os.path.realpath(harness.WORKLOAD))
        self.assertEqual(header["host"], os.uname().nodename)
        variables = {}
        for raw in header["environment"]:
            name, value = [raw[start:end].decode()
                           for _, _, (start, end) in trace_reader.fields(raw, 0, len(raw))]
            variables[name] = value
        self.assertEqual({name: variables.get(name) for name in
                          ("RANK", "LOCAL_RANK", "WORLD_SIZE")},
                         {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"})

    def test_the_native_stack_names_the_callers_in_order(self):
        run = self.run_workload("native", 41)

        trace = self.only_trace(run)
        event = [event for event in trace.allocations() if event["size"] == size_of(41)][0]
        names = trace.names(event["stack"])
        self.assertIn("e2e_inner", names)
        self.assertEqual(names[names.index("e2e_inner") + 1], "e2e_outer")

    def test_the_report_counts_what_the_log_holds(self):
        run = self.run_workload("pairs", 300)

        report = self.report_json(run.logs[0])
        text = self.report(run.logs[0])
        self.assertEqual((text.returncode, text.stderr), (0, ""))
        self.assertIn(str(report["process"]["pid"]), text.stdout)
        self.assertEqual(self.only_trace(run).header["pid"], report["process"]["pid"])


class Files(harness.EndToEnd):
    def test_the_default_name_holds_host_rank_and_pid(self):
        run = self.run_workload("pairs", 1, RANK=2)

        pid = self.only_trace(run).header["pid"]
        self.assertEqual([os.path.basename(log) for log in run.logs],
                         ["dstrace-%s-2-%d.pb" % (os.uname().nodename, pid)])

    def test_the_name_may_be_chosen(self):
        run = self.run_workload("pairs", 1, RANK=5, DSTRACE_OUTPUT="job-%r-%p.%h.pb")

        pid = self.only_trace(run).header["pid"]
        self.assertEqual([os.path.basename(log) for log in run.logs],
                         ["job-5-%d.%s.pb" % (pid, os.uname().nodename)])

    def test_a_second_process_never_overwrites_the_first_ones_log(self):
        first = self.run_workload("pairs", 10, DSTRACE_OUTPUT="run.pb")
        with open(first.logs[0], "rb") as file:
            before = file.read()

        second = self.run_workload("pairs", 20, DSTRACE_OUTPUT="run.pb")

        self.assertEqual(second.status, 0)
        with open(first.logs[0], "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual(len(second.logs), 2)
        counts = sorted(len(trace_reader.read_trace(log).allocations()) for log in second.logs)
        self.assertEqual(counts, [10, 20])

    def test_a_process_without_cuda_leaves_nothing(self):
        self.assert_clean(self.run_workload("none"))
        self.assertEqual(os.listdir(self.directory), [])

    def test_bash_and_its_children_leave_nothing(self):
        run = self.run_program(["bash", "-c", "(echo a; ls /) | sort >/dev/null; exec true"])

        self.assert_clean(run)
        self.assertEqual(run.logs, [])

    @unittest.skipUnless(shutil.which("ninja"), "no ninja")
    def test_ninja_and_its_children_leave_only_what_they_build(self):
        with open(os.path.join(self.directory, "build.ninja"), "w") as file:
            file.write("rule copy\n  command = cp $in $out\nbuild out: copy build.ninja\n")

        run = self.run_program(["ninja"])

        self.assert_clean(run)
        self.assertEqual({os.path.basename(log) for log in run.logs} - {"build.ninja"}, {"out"})

    def test_disabled_means_nothing_happens(self):
        run = self.run_workload("pairs", 10, DSTRACE_DISABLE=1)

        self.assert_clean(run)
        self.assertEqual(run.logs, [])


class Ends(harness.EndToEnd):
    def assert_end(self, mode, status, kind, end_status):
        run = self.run_workload(mode, 50)

        self.assert_clean(run, status)
        trace = self.only_trace(run)
        self.assertEqual(len(trace.allocations()), 50)
        self.assertEqual([(end["kind"], end["status"]) for end in trace.ends],
                         [] if kind is None else [(kind, end_status)])

    def test_return_from_main(self):
        self.assert_end("pairs", 0, EXIT, 0)

    def test_exit(self):
        self.assert_end("exit", 6, EXIT, 6)

    def test_underscore_exit(self):
        self.assert_end("_exit", 5, FAST_EXIT, 5)

    def test_abort_keeps_its_signal_and_every_event(self):
        run = self.run_workload("abort", 50)
        self.assertEqual(run.status, -signal.SIGABRT)
        self.assertEqual(len(self.only_trace(run).allocations()), 50)

    def test_sigterm_keeps_its_signal_and_every_event(self):
        run = self.run_workload("sigterm", 50)
        self.assertEqual(run.status, -signal.SIGTERM)
        self.assertEqual(len(self.only_trace(run).allocations()), 50)

    def test_sigsegv_keeps_its_signal_and_every_event(self):
        run = self.run_workload("sigsegv", 50)
        self.assertEqual(run.status, -signal.SIGSEGV)
        self.assertEqual(len(self.only_trace(run).allocations()), 50)

    def test_a_killed_process_reads_as_killed(self):
        process = self.start([harness.WORKLOAD, "hold", "50"])
        self.assertEqual(process.stdout.readline(), "held\n")
        process.kill()
        process.communicate()

        log = os.path.join(self.directory, os.listdir(self.directory)[0])
        self.assertEqual(trace_reader.read_trace(log).ends, [])
        self.assertIn("kill", self.report(log).stdout.lower())

    def test_exec_keeps_both_programs_events(self):
        run = self.run_workload("exec", 50)

        self.assertEqual(run.status, 0, run.stderr)
        # The same process id means the same default name, which is taken.
        self.assertRegex(run.stderr, r"\A(dstrace: .* exists; writing .*\n)?\Z")
        counts = [len(trace_reader.read_trace(log).allocations()) for log in run.logs]
        self.assertEqual(sum(counts), 57)


class Children(harness.EndToEnd):
    def test_parent_and_child_of_a_fork_have_a_log_each(self):
        run = self.run_workload("fork", 40)

        self.assert_clean(run)
        self.assertEqual(len(run.logs), 2)
        traces = [trace_reader.read_trace(log) for log in run.logs]
        traces.sort(key=lambda trace: len(trace.allocations()))
        child, parent = traces
        self.assertEqual(len(child.allocations()), 20)
        self.assertEqual(len(parent.allocations()), 80)
        self.assertEqual(child.header["parent_pid"], parent.header["pid"])
        self.assertEqual({event["thread"] for event in child.events}, {child.header["pid"]})
        # Definitions are the child's own: each stack of its log resolves there.
        for event in child.allocations():
            self.assertTrue(child.names(event["stack"]))

    def test_a_child_without_cuda_leaves_nothing(self):
        run = self.run_workload("fork-idle", 40)

        self.assert_clean(run)
        self.assertEqual(len(self.only_trace(run).allocations()), 80)


class ForkWhileUnwinding(harness.EndToEnd):
    """Another thread is inside the unwinder, with its lock, when the process forks."""

    def run_fork(self, how):
        run = self.run_program([os.environ["E2E_FORK_PROGRAM"], how])
        self.assertEqual((run.status, run.stdout), (0, "0\n"), run.stderr)
        traces = {trace.header["pid"]: trace for trace in map(trace_reader.read_trace, run.logs)}
        child, = [trace for trace in traces.values() if trace.header["parent_pid"] in traces]
        self.assertEqual([event["size"] for event in child.allocations()], [1536] * 5)
        parent = traces[child.header["parent_pid"]]
        self.assertEqual(sorted(event["size"] for event in parent.allocations()),
                         [512, 512, 512, 1024])
        return run, child, parent

    def test_fork_waits_for_a_thread_that_leaves_and_the_child_has_native_stacks(self):
        run, child, parent = self.run_fork("leaving")

        self.assertEqual(run.stderr, "")
        self.assertNotIn("stacks.native", child.properties)
        for event in child.allocations():
            self.assertIn("e2e_in_child", child.names(event["stack"]))
        # The thread that left came back too early, maybe: it is not let wait.
        for event in parent.allocations():
            self.assertTrue(parent.names(event["stack"]) or event["size"] == 1024)

    def test_a_child_of_a_thread_that_stays_records_without_native_stacks_and_says_so(self):
        run, child, parent = self.run_fork("held")

        self.assertEqual(run.stderr, "dstrace: no native stacks in this child: "
                                     "another thread was unwinding at fork()\n")
        for event in child.allocations():
            self.assertEqual(child.names(event["stack"]), [])
        for event in parent.allocations():
            self.assertTrue(parent.names(event["stack"]))
        log, = [log for log in run.logs
                if trace_reader.read_trace(log).header["pid"] == child.header["pid"]]
        self.assertIn("native stacks: off", self.report(log).stdout)


class Growing(harness.EndToEnd):
    def test_a_log_still_being_written_can_be_reported(self):
        process = self.start([harness.WORKLOAD, "hold", "2000"])
        self.assertEqual(process.stdout.readline(), "held\n")
        log = os.path.join(self.directory, os.listdir(self.directory)[0])

        during = self.report(log)
        trace = trace_reader.read_trace(log)
        process.communicate()

        self.assertEqual((during.returncode, during.stderr), (0, ""))
        self.assertEqual(len(trace.allocations()), 2000)
        self.assertEqual(process.returncode, 0)


if __name__ == "__main__":
    harness.main()
