"""The packages of scripts/package.sh in bare systems: Debian 12, Ubuntu 22.04 and 24.04.

The wheel is installed by pip with torch from the Python index, trains, and is removed. The archive runs without Python.
Needs root, debootstrap, the networks of both distributions and of the index, and a build in the folder GPUTRAIN_BUILD;
8 GB of disk. GPUTRAIN_SYSTEMS names some of the systems.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

from image import SUITES, Image, make_base

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GPUTRAIN_BUILD", ROOT / "build/release"))


def setUpModule():
    global folder, cache
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        raise unittest.SkipTest("needs root and debootstrap")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gputrain_packages_", dir=os.environ.get("TMPDIR", "/var/tmp")))
    unittest.addModuleCleanup(shutil.rmtree, folder)
    cache = BUILD / "debootstrap"
    (cache / "pip").mkdir(parents=True, exist_ok=True)
    subprocess.run([ROOT / "scripts/package.sh", "--build", BUILD, "--into", folder / "dist"], check=True)


def bare(name: str) -> Image:
    make_base(name, folder / name, cache)
    system = Image(folder / name)
    system.environment |= {"GPUTRAIN_METADATA_URL": "aws=http://127.0.0.1:9", "DEBIAN_FRONTEND": "noninteractive"}
    return system


class Packages(unittest.TestCase):
    def in_system(self, name: str):
        begun = time.monotonic()
        system = bare(name)
        self.addCleanup(shutil.rmtree, system.root)
        volumes = {"/dist": folder / "dist", "/jobs": ROOT / "docker", "/pip": cache / "pip", "/configs": ROOT / "configs"}

        def must(line: str) -> str:
            done = system.run(["/bin/sh", "-ec", line], volumes=volumes)
            self.assertEqual(done.returncode, 0, f"{name}$ {line}\n{done.stdout}")
            return done.stdout

        train = "run /jobs/demo.yaml --set train.max_steps=4 --output-dir"
        # The archive, before there is a Python.
        must("cd /opt && tar xzf /dist/gputrain-*.tar.gz && ln -s gputrain-*/ gputrain")
        must(f"/opt/gputrain/bin/gputrain launch --nproc-per-node 2 {train} /root/by_archive")
        must("! command -v python3")
        # The wheel.
        must("apt-get -qq update && apt-get -qq install -y --no-install-recommends python3-venv ca-certificates")
        must("python3 -m venv /env")
        installing = time.monotonic()
        must("/env/bin/pip install -q --cert /etc/ssl/certs/ca-certificates.crt --cache-dir /pip /dist/*.whl")
        installed = time.monotonic() - installing
        must(f"/env/bin/gputrain launch --nproc-per-node 2 {train} /root/by_wheel")
        summaries = [json.loads((system.root / f"root/{run}/summary.json").read_text()) for run in ("by_archive", "by_wheel")]
        self.assertEqual(*(summary["metrics"] for summary in summaries))
        must("/env/bin/gputrain validate /configs/quickstart.yaml")
        # An upgrade under a run: the run goes on with the program that it began with.
        must("/env/bin/gputrain run /jobs/demo.yaml --output-dir /root/upgraded >/root/log 2>&1 & "
             "until grep -q '^step' /root/log; do kill -0 $!; done; "
             "/env/bin/pip install -q --force-reinstall --no-deps --no-index /dist/*.whl && wait $!")
        must("/env/bin/pip uninstall -q -y gputrain && ! ls -d /env/lib/python3*/site-packages/gputrain* /env/bin/gputrain")
        sizes = must("du -sh /opt/gputrain/ /env | tr '\\n' ' '; du -h /dist/* | tr '\\n' ' '")
        print(f"{name}: {time.monotonic() - begun:.0f} s, of which pip {installed:.0f} s; {sizes}", flush=True)

    def test_run_in_bare_systems(self):
        for name in os.environ.get("GPUTRAIN_SYSTEMS", " ".join(SUITES.values())).split():
            with self.subTest(name):
                self.in_system(name)


if __name__ == "__main__":
    unittest.main()
