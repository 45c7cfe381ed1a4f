# SPDX-License-Identifier: Apache-2.0
"""dstrace compact: what it leaves, what it refuses, and what is read of damaged copies.

usage: compact_test.py path/to/dstrace-report
"""
import glob
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = None
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SAMPLES = sorted(glob.glob(os.path.join(ROOT, "samples", "*.pb")))
SAMPLE = os.path.join(ROOT, "samples", "torch_training.pb")
MAGIC = b"\x28\xb5\x2f\xfd"


def run(*words):
    return subprocess.run([PROGRAM] + list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=120, check=False)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)


def declared_size(frame):
    """What a frame with a size of four bytes says it holds."""
    descriptor = frame[4]
    assert descriptor >> 6 == 2
    at = 5 if descriptor & 0x20 else 6  # one segment, or behind the window's size
    return struct.unpack("<I", frame[at:at + 4])[0]


class CompactTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.trace = os.path.join(self.folder, "run.pb")
        self.packed = self.trace + ".zst"
        shutil.copy(SAMPLE, self.trace)

    def names(self):
        return sorted(os.listdir(self.folder))

    def compact(self, *words):
        result = run("compact", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def assert_refused(self, words, *parts):
        result = run(*words)
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)


class Compact(CompactTest):
    def test_every_sample_has_the_same_report_compressed(self):
        for sample in SAMPLES:
            folder = tempfile.mkdtemp(dir=self.folder)
            packed = os.path.join(folder, "x.pb")
            self.compact(sample, "-o", packed)
            self.assertLess(os.path.getsize(packed) * 2, os.path.getsize(sample))
            for options in ((), ("--stacks", "--at", "end"), ("--format", "folded")):
                self.assertEqual(run(packed, *options).stdout, run(sample, *options).stdout, sample)

    def test_the_copy_lies_beside_the_trace_with_its_mode_and_time_and_says_its_size(self):
        os.chmod(self.trace, 0o640)
        os.utime(self.trace, (1000000000, 1000000000))

        output = self.compact(self.trace)

        self.assertEqual(self.names(), ["run.pb", "run.pb.zst"])
        self.assertEqual(stat.S_IMODE(os.stat(self.packed).st_mode), 0o640)
        self.assertEqual(os.stat(self.packed).st_mtime, 1000000000)
        self.assertEqual(read(self.trace), read(SAMPLE))
        self.assertRegex(output, r"^%s: [\d.]+ KiB, was 256.0 KiB\n$" % self.packed)

    def test_several_are_compacted_one_by_one_and_a_bad_one_does_not_stop_the_others(self):
        other = os.path.join(self.folder, "a.pb")
        write(other, b"")
        result = run("compact", other, self.trace, "--remove")
        self.assertEqual(result.returncode, 1)
        self.assertIn("a.pb: byte 0: the file is empty", result.stderr)
        self.assertEqual(self.names(), ["a.pb", "run.pb.zst"])
        self.assertEqual(run(self.packed).stdout, run(SAMPLE).stdout)

    def test_nothing_is_overwritten(self):
        write(self.packed, b"mine")
        self.assert_refused(("compact", self.trace, "--remove"), "run.pb.zst", "exists")
        self.assertEqual((self.names(), read(self.packed)), (["run.pb", "run.pb.zst"], b"mine"))

    def test_what_is_no_trace_is_refused_and_left_alone(self):
        for content, part in ((b"", "byte 0"), (b"this is not a trace\n" * 900, "byte 0: not a dstrace trace")):
            write(self.trace, content)
            self.assert_refused(("compact", self.trace, "--remove"), self.trace, part)
            self.assertEqual((self.names(), read(self.trace)), (["run.pb"], content))

    def test_a_long_trace_is_in_frames_of_4_mib_each_with_its_size(self):
        content = read(SAMPLE) * 20
        write(self.trace, content)
        self.compact(self.trace)
        packed = read(self.packed)
        second = packed.index(MAGIC, 4)
        self.assertEqual(declared_size(packed), 4 << 20)
        self.assertEqual(declared_size(packed[second:]), len(content) - (4 << 20))
        self.assertEqual(run(self.packed).stdout, run(self.trace).stdout)

        damaged = bytearray(packed)
        damaged[second // 2] ^= 0x10
        write(self.packed, damaged)
        said = " ".join(run(self.packed).stdout.split())
        self.assertIn("the %d bytes from byte 0 on are left out" % second, said)
        self.assertIn("4194304 bytes skipped", said)

    def test_a_compressed_trace_is_not_compressed_again(self):
        self.compact(self.trace)
        self.assert_refused(("compact", self.packed), "run.pb.zst", "compressed already")

    def test_a_folder_that_does_not_exist_is_one_line(self):
        self.assert_refused(("compact", self.trace, "-o", "/nonexistent/x.zst"), "/nonexistent/x.zst")

    def test_bad_usage_has_status_2(self):
        for words in ((), ("--fast", "x.pb"), ("x.pb", "-o"), ("x.pb", "y.pb", "-o", "z.zst")):
            result = run("compact", *words)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("usage: dstrace compact", result.stderr)
        self.assertIn("usage: dstrace compact", run("compact", "--help").stdout)

    def test_a_damaged_trace_is_kept_as_it_is(self):
        content = bytearray(read(SAMPLE))
        content[65536 + 300:65536 + 330] = b"\xff" * 30
        write(self.trace, content)
        before = run(self.trace).stdout
        self.compact(self.trace, "--remove")
        self.assertEqual(run(self.packed).stdout, before)

    @unittest.skipUnless(shutil.which("zstd"), "no zstd command here")
    def test_the_zstd_command_gives_the_bytes_back_and_its_own_files_are_read(self):
        self.compact(self.trace)
        subprocess.run(["zstd", "-dq", self.packed, "-o", self.trace + ".back"], check=True)
        self.assertEqual(read(self.trace + ".back"), read(SAMPLE))
        subprocess.run(["zstd", "-q19", self.trace, "-o", self.trace + ".own"], check=True)
        self.assertEqual(run(self.trace + ".own").stdout, run(SAMPLE).stdout)


class Damage(CompactTest):
    def setUp(self):
        super().setUp()
        self.compact(self.trace, "--remove")
        self.whole = read(self.packed)

    def report(self, content):
        write(self.packed, content)
        return run(self.packed)

    def test_a_file_that_is_cut_off_is_read_as_far_as_it_goes(self):
        events = []
        for tenth in range(1, 10):
            size = len(self.whole) * tenth // 10
            result = self.report(self.whole[:size])
            if result.returncode:
                self.assertRegex(result.stderr, r"^dstrace-report: \S*run.pb.zst: .*compressed byte %d\b.*\n$" % size)
                continue
            self.assertRegex(result.stdout, r"compressed byte %d: the file is cut off" % size)
            events.append(size)
        # The 256 KiB of the sample are two blocks of zstd's.
        self.assertTrue(events)

    def test_a_damaged_byte_is_an_error_with_its_offset_or_seen_by_the_checksum(self):
        good = run(SAMPLE).stdout
        step = max(1, len(self.whole) // 200)
        for at in range(4, len(self.whole), step):
            content = bytearray(self.whole)
            content[at] ^= 0x10
            result = self.report(bytes(content))
            if result.returncode == 0:
                # A bit that means nothing.
                self.assertEqual(result.stdout, good, "byte %d" % at)
                continue
            self.assertEqual(result.returncode, 1, "byte %d: %s" % (at, result.stderr))
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertRegex(result.stderr, r"run.pb.zst: (un)?(compressed|packed) byte \d+: ")

    def test_damage_in_one_frame_costs_that_frame(self):
        # Two frames: the sample, and the sample again as what follows it.
        content = bytearray(self.whole + self.whole)
        content[len(self.whole) + len(self.whole) // 2] ^= 0x10
        result = self.report(bytes(content))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("are left out", " ".join(result.stdout.split()))
        content = bytearray(self.whole + self.whole)
        content[len(self.whole) // 2] ^= 0x10
        result = self.report(bytes(content))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the %d bytes from byte 0 on are left out" % len(self.whole), " ".join(result.stdout.split()))

    def test_an_empty_one_and_one_of_something_else_are_refused(self):
        empty_frame = MAGIC + b"\x20\x00\x01\x00\x00"
        self.assert_refused_content(empty_frame, "byte 0: the file is empty")
        raw = b"this is not a trace\n"
        frame = MAGIC + b"\x20" + bytes([len(raw)]) + (len(raw) << 3 | 1).to_bytes(3, "little") + raw
        self.assert_refused_content(frame, "byte 0: not a dstrace trace")
        self.assert_refused_content(MAGIC, "compressed byte 4: the file is cut off")
        self.assert_refused_content(MAGIC + b"\xff" * 100, "compressed byte")

    def test_more_than_is_unpacked_is_refused_before_it_is_tried(self):
        frame = MAGIC + b"\xe0" + struct.pack("<Q", 1 << 40)
        self.assert_refused_content(frame + b"\x00" * 50, "more than 8 GiB", "zstd -d")

    def assert_refused_content(self, content, *parts):
        write(self.packed, content)
        self.assert_refused((self.packed,), "run.pb.zst", *parts)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
