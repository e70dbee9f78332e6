"""check_includes.py accepts includes of earlier rooms, and reports file and line of all others."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_includes.py"


class CheckIncludes(unittest.TestCase):
    def check(self, files: dict[str, str]) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            rooms = "set(GPUTRAIN_ROOMS core comm data app)\nset(GPUTRAIN_PLUGIN_ROOMS core data)\n"
            for name, text in ({"scripts/cmake/Rooms.cmake": rooms} | files).items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)

    def test_a_room_may_include_itself_and_rooms_above(self):
        result = self.check({"src/data/a.cpp": '#include "gputrain/core/x.hpp"\n#include "gputrain/data/a.hpp"\n'})
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_an_include_of_a_room_below_is_named_with_its_line(self):
        result = self.check({"include/gputrain/core/x.hpp": '#pragma once\n#include "gputrain/app/y.hpp"\n'})
        self.assertEqual(result.returncode, 1)
        self.assertIn("include/gputrain/core/x.hpp:2: core/ includes gputrain/app/y.hpp", result.stdout)

    def test_sources_in_subfolders_and_kernels_are_checked_too(self):
        result = self.check({"src/core/cuda/k.cu": '#  include "gputrain/data/y.hpp"\n'})
        self.assertEqual(result.returncode, 1)
        self.assertIn("src/core/cuda/k.cu:1", result.stdout)

    def test_headers_for_plugins_include_no_header_that_is_not_installed(self):
        includes = '#include "gputrain/core/x.hpp"\n#include "gputrain/comm/y.hpp"\n'
        result = self.check({"include/gputrain/data/a.hpp": includes, "src/data/a.cpp": includes})
        self.assertEqual(result.returncode, 1)
        self.assertIn("include/gputrain/data/a.hpp:2: gputrain/comm/y.hpp is not installed", result.stdout)
        self.assertEqual(len(result.stdout.splitlines()), 1)

    def test_public_headers_stay_cheap(self):
        result = self.check({"include/gputrain/data/x.hpp": "#include <ATen/core/Tensor.h>\n#include <ATen/ATen.h>\n"})
        self.assertEqual(result.returncode, 1)
        self.assertIn("x.hpp:2: ATen/ATen.h in a public header", result.stdout)
        self.assertNotIn("x.hpp:1:", result.stdout)

    def test_the_header_that_reads_json_is_for_sources_alone(self):
        include = '#include "gputrain/core/json.hpp"\n'
        files = {"include/gputrain/core/json.hpp": "#include <nlohmann/json.hpp>\n", "src/data/a.cpp": include}
        self.assertEqual(self.check(files).returncode, 0)
        result = self.check(files | {"include/gputrain/data/x.hpp": include})
        self.assertIn("x.hpp:1: gputrain/core/json.hpp in a public header", result.stdout)


if __name__ == "__main__":
    unittest.main()
