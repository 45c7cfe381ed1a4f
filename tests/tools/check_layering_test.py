# SPDX-License-Identifier: Apache-2.0
"""The layering checker finds each kind of violation, and only those."""
import os
import subprocess
import sys
import tempfile
import unittest

CHECKER = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "check_layering.py")


class CheckLayering(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.TemporaryDirectory()
        self.addCleanup(self.root.cleanup)
        # What the cases below may or may not include.
        for header in ("preload/runtime/guard.h", "preload/stacks/native.h",
                       "preload/log/log.h", "preload/capture/recorder.h",
                       "analyzer/model/run.h", "analyzer/report/text.h",
                       "proto/wire/encoder.h", "tests/support/temp.h"):
            self.write(header, "#include <cstdint>\n")

    def write(self, path, text):
        full = os.path.join(self.root.name, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def check(self):
        run = subprocess.run([sys.executable, CHECKER, self.root.name],
                             stdout=subprocess.PIPE, universal_newlines=True)
        return run.returncode, run.stdout

    def assert_rejects(self, path, include, why):
        self.write(path, "#include %s\n" % include)
        status, output = self.check()
        self.assertEqual(status, 1)
        self.assertIn("%s:1:" % path, output)
        self.assertIn(why, output)

    def test_accepts_what_the_table_allows(self):
        self.write("preload/hooks/driver.cc",
                   '#include "preload/capture/recorder.h"\n#include <cuda.h>\n')
        self.write("preload/library.cc", '#include "preload/log/log.h"\n')
        self.write("analyzer/report/json.cc",
                   '#include "analyzer/model/run.h"\n#include "nlohmann/json.hpp"\n')
        self.assertEqual(self.check(), (0, ""))

    def test_hooks_see_only_the_recorder(self):
        self.assert_rejects("preload/hooks/a.cc", '"preload/stacks/native.h"',
                            "may not include preload/stacks/native.h")

    def test_reports_cannot_reach_the_file(self):
        self.assert_rejects("analyzer/report/a.cc", '"proto/trace.pb.h"',
                            "may not include proto/trace.pb.h")

    def test_the_analyzer_knows_nothing_of_the_preload(self):
        self.assert_rejects("analyzer/cli/a.cc", '"preload/runtime/guard.h"',
                            "may not include preload/runtime/guard.h")

    def test_no_protobuf_in_the_preload(self):
        self.assert_rejects("preload/log/a.cc", "<google/protobuf/message.h>",
                            "may not use protobuf")

    def test_no_abseil_in_the_preload(self):
        self.assert_rejects("preload/capture/a.cc", '"absl/strings/str_cat.h"',
                            "may not use absl")

    def test_no_streams_in_the_preload(self):
        self.assert_rejects("preload/runtime/a.cc", "<iostream>", "<iostream>")

    def test_no_rooms_include_each_other_in_circles(self):
        self.assert_rejects("preload/stacks/a.cc", '"preload/capture/recorder.h"',
                            "may not include preload/capture/recorder.h")

    def test_products_do_not_include_tests(self):
        self.assert_rejects("analyzer/cli/a.cc", '"tests/support/temp.h"',
                            "may not include tests/support/temp.h")

    def test_paths_start_at_the_repository_root(self):
        self.assert_rejects("preload/stacks/a.cc", '"native.h"',
                            'no "native.h" from the repository root')

    def test_every_folder_belongs_to_a_room(self):
        self.assert_rejects("analyzer/extra/a.cc", "<cstdint>", "in no room")

    def test_an_empty_tree_is_not_a_pass(self):
        with tempfile.TemporaryDirectory() as empty:
            run = subprocess.run([sys.executable, CHECKER, empty],
                                 stdout=subprocess.DEVNULL)
            self.assertEqual(run.returncode, 1)


if __name__ == "__main__":
    unittest.main()
