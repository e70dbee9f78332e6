"""The wheel of scripts/package.sh runs in a Python environment, with the LibTorch of the torch package there.

Needs a build in the folder GPUTRAIN_BUILD.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GPUTRAIN_BUILD", ROOT / "build/release"))
PACKAGES = next(ROOT.glob(".deps/lib/python3*/site-packages"))  # with torch


def environment(wheel: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Makes a virtual environment with the wheel and without torch. Returns its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    subprocess.run([sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--quiet", "--no-index",
                    "--no-deps", "--disable-pip-version-check", wheel], check=True)
    return next(folder.glob("lib/python3*/site-packages"))


def setUpModule():
    global folder, wheel, site
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gputrain_package_"))
    unittest.addModuleCleanup(shutil.rmtree, folder)
    made = subprocess.run([ROOT / "scripts/package.sh", "--build", BUILD, "--wheel", "--into", folder / "dist"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert made.returncode == 0, made.stdout
    wheel = next((folder / "dist").glob("*.whl"))
    site = environment(wheel, folder / "env")
    for name in ("torch", "nvidia", *(path.name for path in PACKAGES.glob("torch-*.dist-info"))):
        (site / name).symlink_to(PACKAGES / name)  # as if installed


def gputrain(*words: str, env: pathlib.Path | None = None) -> tuple[int, str]:
    done = subprocess.run([(env or folder / "env") / "bin/gputrain", *words], cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


class TheWheel(unittest.TestCase):
    def must(self, *words: str) -> str:
        code, output = gputrain(*words)
        self.assertEqual(code, 0, output)
        return output

    def test_has_a_checksum(self):
        subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder / "dist", check=True,
                       stdout=subprocess.DEVNULL)

    def test_names_a_glibc_that_this_system_has(self):
        tag = re.search(r"manylinux_2_(\d+)_", wheel.name)
        self.assertTrue(tag, wheel.name)
        self.assertLessEqual((2, int(tag[1])), tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))))

    def test_has_no_library_of_another_package(self):
        names = [name for name in zipfile.ZipFile(wheel).namelist() if ".so" in name]
        self.assertTrue(any("libyaml-cpp" in name for name in names), names)
        others = [name for name in names if re.search("torch|c10|cuda|cublas|cudnn|nccl|arrow|gomp|parquet.so.", name)]
        self.assertEqual(others, [])

    def test_has_the_licences_of_its_libraries_alone(self):
        names = zipfile.ZipFile(wheel).namelist()
        licences = {name.split("/licenses/")[1].split("/")[0] for name in names if "/share/gputrain/licenses/" in name}
        libraries = [pathlib.Path(name).name for name in names if ".so" in name and "libgputrain" not in name]
        for library in libraries:
            owners = subprocess.run(["dpkg", "-S", f"*/{library}"], capture_output=True, text=True).stdout
            self.assertTrue(licences & {line.split(":")[0] for line in owners.splitlines()}, library)
        self.assertEqual([name for name in licences if re.match("torch|nvidia|pyarrow", name)], [])

    def test_trains_on_two_ranks_with_the_environments_libtorch(self):
        self.must("launch", "--nproc-per-node", "2", "run", str(ROOT / "docker/demo.yaml"), "--output-dir", "run",
                  "--set", "train.max_steps=2")
        self.assertTrue((folder / "run/model.safetensors").exists())
        loaded = subprocess.run(["ldd", site / "gputrain/lib/libgputrain.so"], capture_output=True, text=True).stdout
        self.assertRegex(loaded, rf"libtorch_cpu.so => {re.escape(str(site))}\S*/torch/lib/")
        self.assertNotIn("not found", loaded)

    def test_has_recipes_inside_the_program(self):
        shutil.rmtree(site / "gputrain/share/gputrain/configs")
        self.assertIn("finetune_lora", self.must("init", "--list"))
        self.must("init", "--recipe", "finetune_lora", "--output", "job.yaml")
        self.assertEqual((folder / "job.yaml").read_text(), (ROOT / "configs/finetune_lora.yaml").read_text())

    def test_runs_as_a_module(self):
        done = subprocess.run([folder / "env/bin/python", "-m", "gputrain", "--version"], capture_output=True, text=True)
        self.assertRegex(done.stdout, r"^gputrain \d", done.stderr)

    def test_without_its_torch_says_which_one_it_needs(self):
        alone = environment(wheel, folder / "alone")
        for version in (None, "2.10.0"):
            if version:
                (alone / f"torch-{version}.dist-info").mkdir()
            code, output = gputrain("--version", env=folder / "alone")
            self.assertEqual(code, 1, output)
            self.assertRegex(output, r"torch 2\.11\.0 is not installed")
            self.assertRegex(output, r"-m pip install torch==2\.11\.0")


if __name__ == "__main__":
    unittest.main()
