"""CMakePresets.json: warnings are errors in CI alone, and kernels are built for every GPU that LibTorch runs on."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(flags LANGUAGES NONE)
include({settings})
get_target_property(flags gputrain_settings INTERFACE_COMPILE_OPTIONS)
message(STATUS "${{flags}}")
"""


def compile_options(**variables: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "CMakeLists.txt").write_text(
            PROJECT.format(settings=ROOT / "scripts/cmake/Settings.cmake")
        )
        given = [f"-D{name}={value}" for name, value in variables.items()]
        return subprocess.run(
            ["cmake", "-G", "Ninja", "-S", folder, "-B", f"{folder}/build", *given],
            check=True,
            capture_output=True,
            text=True,
        ).stdout


def variables_of(preset: str, **environment: str) -> str:
    cleared = {name: value for name, value in os.environ.items() if name != "GPUTRAIN_WERROR"}
    return subprocess.run(
        ["cmake", "-N", "--preset", preset],
        cwd=ROOT,
        env=cleared | environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


class Werror(unittest.TestCase):
    def test_is_off_unless_asked_for(self):
        self.assertNotIn("-Werror", compile_options(GPUTRAIN_WERROR=""))
        self.assertIn("-Wall", compile_options())
        self.assertIn("-Werror", compile_options(GPUTRAIN_WERROR="ON"))

    def test_is_asked_for_by_environment_in_every_preset(self):
        for preset in ("release", "cuda", "asan", "fuzz"):
            self.assertNotIn('GPUTRAIN_WERROR="ON"', variables_of(preset))
            self.assertIn('GPUTRAIN_WERROR="ON"', variables_of(preset, GPUTRAIN_WERROR="ON"))

    def test_is_asked_for_by_ci(self):
        self.assertIn("export GPUTRAIN_WERROR=ON", (ROOT / ".ci/run").read_text())


class Architectures(unittest.TestCase):
    def test_cover_every_gpu_of_libtorch(self):
        presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
        built = next(
            one["cacheVariables"]["CMAKE_CUDA_ARCHITECTURES"] for one in presets if one["name"] == "cuda"
        ).split(";")
        of_libtorch = ["75", "80", "86", "90", "100", "120"]
        self.assertLessEqual({f"{number}-real" for number in of_libtorch[:-1]} | {"89-real"}, set(built))
        self.assertEqual(built[-1], of_libtorch[-1])  # also as PTX, for newer GPUs


if __name__ == "__main__":
    unittest.main()
