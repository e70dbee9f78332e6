"""scripts/setup.sh judges the GPU and its driver before it installs or downloads anything, and installs no wheel but those
that were published."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NVIDIA_SMI = """#!/bin/sh
case $1 in
  --query-gpu=driver_version) echo {driver} ;;
  --query-gpu=compute_cap,name) printf '{gpus}' ;;
  -L) echo 'GPU 0' ;;
  *) echo '| NVIDIA-SMI {driver}      Driver Version: {driver}      {header} |' ;;
esac
"""
WITHOUT_NAMES = """#!/bin/sh
[ "$1" = -L ] || exit 9
echo 'GPU 0'
"""


class Gpu(unittest.TestCase):
    def setup(self, nvidia_smi: str, *options: str, script: str = "setup.sh") -> tuple[int, str]:
        """Runs a script in an empty checkout. It ends at the latest where it would make .deps/: there is no Python."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "scripts", f"{folder}/scripts")
            fake = pathlib.Path(folder) / "nvidia-smi"
            fake.write_text(nvidia_smi)
            fake.chmod(0o755)
            if script == "setup.sh":
                options = (*options, "--skip-system")
            done = subprocess.run(
                [f"{folder}/scripts/{script}", *options],
                capture_output=True,
                text=True,
                env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHON": "/no/python"},
            )
            self.assertFalse(pathlib.Path(folder, ".deps").exists())
            return done.returncode, done.stdout + done.stderr

    def smi(self, driver="580.65.06", header="CUDA Version: 13.0", gpus="9.0, NVIDIA H100\\n") -> str:
        return NVIDIA_SMI.format(driver=driver, header=header, gpus=gpus)

    def expect_refusal(self, nvidia_smi: str, *words: str):
        for script in ("setup.sh", "quickstart.sh", "build.sh", "test.sh"):
            code, said = self.setup(nvidia_smi, script=script)
            self.assertEqual(code, 1, said)
            for word in (*words, f"{script} --cpu"):
                self.assertIn(word, said)
            self.assertNotIn("no python3", said)

    def expect_acceptance(self, nvidia_smi: str):
        _, said = self.setup(nvidia_smi)
        self.assertIn("no python3", said)
        self.assertNotIn("driver", said)

    def test_needs_a_driver_for_cuda_13(self):
        self.expect_refusal(self.smi("570.124.06", "CUDA Version: 12.8"), "driver 570.124.06", "CUDA up to 12.8", "580")
        self.expect_refusal(self.smi("535.54.03", ""), "the driver is 535.54.03", "580")

    def test_needs_compute_capability_7_5(self):
        self.expect_refusal(
            self.smi(gpus="7.0, Tesla V100-SXM2-16GB\\n"), "Tesla V100-SXM2-16GB has compute capability 7.0", "7.5"
        )

    def test_is_accepted_if_one_of_several_will_do(self):
        self.expect_acceptance(self.smi(gpus="6.1, GTX 1080\\n12.0, RTX 5090\\n7.0, TITAN V\\n"))
        self.expect_acceptance(self.smi(gpus="7.5, Tesla T4\\n"))

    def test_is_accepted_with_compat_libraries(self):
        self.expect_acceptance(self.smi("535.54.03", "CUDA Version: 13.0"))
        self.expect_acceptance(self.smi("590.10", "CUDA UMD Version: 13.1"))

    def test_is_accepted_if_nvidia_smi_does_not_tell(self):
        self.expect_acceptance(WITHOUT_NAMES)
        self.expect_acceptance(self.smi(gpus='Field "compute_cap" is not a valid field to query.\\n'))

    def test_does_not_matter_for_cpu_builds(self):
        _, said = self.setup(self.smi("470.10", "CUDA Version: 11.4"), "--cpu")
        self.assertIn("no python3", said)
        self.assertNotIn("driver", said)

    def test_only_gets_a_note_if_cuda_is_asked_for(self):
        _, said = self.setup(self.smi("470.10", "CUDA Version: 11.4"), "--cuda")
        self.assertLess(
            said.index("note: the GPU of this machine cannot run what is built here: driver 470.10"),
            said.index("no python3"),
        )


class Wheels(unittest.TestCase):
    def install(self, folder: str, wheel_hash: str) -> subprocess.CompletedProcess:
        """Sets up a checkout whose LibTorch is a small wheel, from an index that has only this one."""
        root = pathlib.Path(folder, "checkout")
        shutil.copytree(ROOT / "scripts", root / "scripts")
        (root / "scripts/requirements-torch.txt").write_text(f"torch==2.11.0 --hash=sha256:{wheel_hash}\n")
        return subprocess.run(
            [root / "scripts/setup.sh", "--cpu", "--skip-system"],
            capture_output=True,
            text=True,
            env=os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": folder, "PYTHON": sys.executable},
        )

    def wheel(self, folder: str) -> pathlib.Path:
        path = pathlib.Path(folder, "torch-2.11.0-py3-none-any.whl")
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("torch/__init__.py", "")
            info = "torch-2.11.0.dist-info"
            wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
        return path

    def test_that_were_changed_are_not_installed(self):
        with tempfile.TemporaryDirectory() as folder:
            wheel = self.wheel(folder)
            published = hashlib.sha256(wheel.read_bytes()).hexdigest()
            with zipfile.ZipFile(wheel, "a") as changed:
                changed.writestr("torch/more.py", "")
            done = self.install(folder, published)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("a wheel is not the one that was published", done.stdout + done.stderr)
            self.assertFalse(list(pathlib.Path(folder).glob("checkout/.deps/lib/python3*/site-packages/torch")))

    def test_that_were_published_are_installed(self):
        with tempfile.TemporaryDirectory() as folder:
            published = hashlib.sha256(self.wheel(folder).read_bytes()).hexdigest()
            done = self.install(folder, published)
            installed = pathlib.Path(folder, "checkout/.deps/installed/torch")
            self.assertTrue(installed.exists(), done.stdout + done.stderr)

    def test_all_have_hashes(self):
        for path in ROOT.glob("scripts/requirements-*.txt"):
            lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
            for line, following in zip(lines, [*lines[1:], ""]):
                if "==" in line:
                    self.assertTrue(line.endswith(" \\") and following.startswith("    --hash=sha256:"), line)


if __name__ == "__main__":
    unittest.main()
