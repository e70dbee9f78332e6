"""Runs the images' stages without a container engine: the result can train and needs nothing else.

Needs root, debootstrap and a build in the folder GPUTRAIN_BUILD.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import dockerfile
from image import Image, signal_to

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GPUTRAIN_BUILD", ROOT / "build/release"))
NOWHERE = {"GPUTRAIN_METADATA_URL": "aws=http://127.0.0.1:9"}  # tests must not query a real cloud


def missing() -> str:
    if os.geteuid() != 0:
        return "needs root, for root folders and namespaces"
    for program, package in (("debootstrap", "debootstrap"), ("ip", "iproute2"), ("unshare", "util-linux")):
        if not shutil.which(program):
            return f"{program} is missing: apt-get install {package}"
    for command in ("unshare --mount --pid --uts --ipc --fork true", "ip link add gputrain type bridge",
                    "ip link del gputrain"):
        if (tried := subprocess.run(command.split(), stderr=subprocess.PIPE, text=True)).returncode:
            return f"not possible here: {tried.stderr.strip()}"  # containers withhold it even from root
    return ""


def make_base(root: pathlib.Path):
    """A bare Debian, plus the files that cloud images and engines add."""
    cache = BUILD / "debootstrap"
    cache.mkdir(exist_ok=True)
    subprocess.run(["debootstrap", "--variant=minbase", f"--cache-dir={cache}", "bookworm", root,
                    "http://deb.debian.org/debian"], check=True, stdout=subprocess.DEVNULL)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    for proxy in pathlib.Path("/etc/apt/apt.conf.d").glob("*proxy*"):
        shutil.copy(proxy, root / "etc/apt/apt.conf.d")


def setUpModule():
    global folder, run_image, node_image
    if reason := missing():
        raise unittest.SkipTest(reason)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gputrain_image_", dir="/var/tmp"))
    unittest.addModuleCleanup(shutil.rmtree, folder)
    subprocess.run([ROOT / "docker/assemble.sh", "--build", BUILD, folder / "gputrain"], check=True)
    stages = {stage.name: stage for stage in dockerfile.read((ROOT / "docker/Dockerfile").read_text()).stages}
    make_base(folder / "run")
    run_image = Image(folder / "run")
    run_image.build(stages["run"], ROOT, {"/opt/gputrain": folder / "gputrain"})
    subprocess.run(["cp", "-al", folder / "run", folder / "node"], check=True)
    node_image = Image(folder / "node")
    for name in ("environment", "folder"):
        setattr(node_image, name, getattr(run_image, name))
    node_image.build(stages["node"], ROOT, {})


def volume(owner: int = 10001) -> pathlib.Path:
    """An empty folder owned by the image's user."""
    path = pathlib.Path(tempfile.mkdtemp(dir=folder))
    os.chown(path, owner, owner)
    return path


def losses(run: pathlib.Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["train/loss"] for line in lines if line["kind"] == "train"]


class TheRunImage(unittest.TestCase):
    def setUp(self):
        self.work = volume()
        self.volumes = {"/work": self.work, "/jobs/demo.yaml": ROOT / "docker/demo.yaml"}
        run_image.environment |= NOWHERE

    def train(self, *settings: str, **options) -> tuple[int, str]:
        words = [word for setting in settings for word in ("--set", setting)]
        engine = run_image.start(["run", "/jobs/demo.yaml", "--output-dir", "/work/demo", *words],
                                 volumes=self.volumes, **options)
        output, _ = engine.communicate(timeout=300)
        return engine.returncode, output

    def test_needs_nothing_but_what_is_in_it(self):
        listing = run_image.run(["ldd", "/opt/gputrain/bin/gputrain", "/opt/gputrain/lib/libgputrain.so"]).stdout.splitlines()
        self.assertTrue(any("=> /opt/gputrain/bin/../lib/libyaml-cpp" in line for line in listing), listing)
        self.assertEqual([line for line in listing if "not found" in line], [])
        elsewhere = {pathlib.Path(line.split()[2]).name for line in listing
                     if "=> /" in line and "=> /opt/gputrain/" not in line}
        of_base = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libresolv.so.2", "libutil.so.1",
                   "libgcc_s.so.1", "libstdc++.so.6"}
        self.assertLessEqual(elsewhere, of_base)

    def test_has_no_compiler_and_no_python(self):
        for program in ("gcc", "g++", "c++", "cc", "ld", "cmake", "nvcc", "python3", "pip", "git"):
            self.assertNotEqual(run_image.run(["which", program]).returncode, 0, program)

    def test_trains_and_is_not_root(self):
        code, output = self.train()
        self.assertEqual(code, 0, output)
        self.assertIn("done    100/100", output)
        self.assertEqual((self.work / "demo/model.safetensors").stat().st_uid, 10001)
        self.assertEqual(run_image.run(["id", "-u"]).stdout.strip(), "10001")

    def test_trains_as_any_user_that_the_engine_is_told(self):
        os.chown(self.work, 12345, 12345)
        code, output = self.train(user="12345")
        self.assertEqual(code, 0, output)
        self.assertEqual((self.work / "demo/model.safetensors").stat().st_uid, 12345)

    def test_launches_ranks(self):
        engine = run_image.start(["launch", "--nproc-per-node", "2", "run", "/jobs/demo.yaml", "--output-dir",
                                  "/work/demo"], volumes=self.volumes)
        output, _ = engine.communicate(timeout=300)
        self.assertEqual(engine.returncode, 0, output)
        self.assertIn("2 ranks on localhost:2", output)

    def test_saves_when_it_is_stopped(self):
        engine = run_image.start(["run", "/jobs/demo.yaml", "--output-dir", "/work/demo", "--set",
                                  "train.max_steps=1000000"], volumes=self.volumes)
        for line in engine.stdout:
            if line.startswith("step"):
                break
        signal_to(engine, signal.SIGTERM)
        output, _ = engine.communicate(timeout=60)
        self.assertEqual(engine.returncode, 143, output)
        self.assertTrue((self.work / "demo/ckpt/latest").exists())

    def test_says_how_it_is_used(self):
        engine = run_image.start()
        output, _ = engine.communicate(timeout=60)
        self.assertEqual(engine.returncode, 0)
        self.assertRegex(output, "(?m)^ +launch ")


class Cluster:
    """The services of compose.yaml, each in its own network namespace on one bridge."""

    def __init__(self):
        import yaml
        self.services = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
        self.volumes = {name: volume() for name in ("cluster", "identity", "work")}
        for path in self.volumes.values():
            path.chmod(0o700)
        self.prefix, self.engines = f"gi{os.getpid()}", {}
        subnet = f"10.232.{os.getpid() % 250}"
        self.ip("link", "add", self.prefix, "type", "bridge")
        self.ip("link", "set", self.prefix, "up")
        hosts = "127.0.0.1 localhost\n"
        for number, name in enumerate(self.services, 1):
            self.ip("netns", "add", self.prefix + name)
            self.ip("link", "add", f"{self.prefix}{number}", "type", "veth", "peer", "name", "eth0", "netns",
                    self.prefix + name)
            self.ip("link", "set", f"{self.prefix}{number}", "master", self.prefix, "up")
            self.ip("-n", self.prefix + name, "address", "add", f"{subnet}.{number}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                self.ip("-n", self.prefix + name, "link", "set", link, "up")
            self.ip("-n", self.prefix + name, "route", "add", "default", "dev", "eth0")
            hosts += f"{subnet}.{number} {name}\n"
        node_image.inside("/etc/hosts").unlink(missing_ok=True)
        node_image.inside("/etc/hosts").write_text(hosts)

    @staticmethod
    def ip(*words: str):
        subprocess.run(["ip", *words], check=True)

    def options(self, service: str) -> dict:
        volumes = {}
        for entry in self.services[service]["volumes"]:
            source, inside, *_ = entry.split(":")
            volumes[inside] = ROOT / "docker" / source if source.startswith(".") else self.volumes[source]
        return {"volumes": volumes, "hostname": self.services[service].get("hostname", service),
                "network": self.prefix + service}

    def start(self, service: str) -> subprocess.Popen:
        engine = node_image.start(self.services[service].get("command"), **self.options(service))
        self.engines[service] = engine
        return engine

    def wait_until_healthy(self, service: str):
        check = self.services[service]["healthcheck"]["test"][1:]
        while subprocess.run(["ip", "netns", "exec", self.prefix + service, *check], stderr=subprocess.DEVNULL).returncode:
            assert self.engines[service].poll() is None, self.engines[service].communicate()[0]
            time.sleep(0.1)  # as an engine pauses between checks

    def remove(self):
        for engine in self.engines.values():
            if engine.poll() is None:
                signal_to(engine, signal.SIGKILL)
            engine.communicate()
        for number, name in enumerate(self.services, 1):
            subprocess.run(["ip", "netns", "del", self.prefix + name])
            subprocess.run(["ip", "link", "del", f"{self.prefix}{number}"], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", self.prefix])


class TheNodeImage(unittest.TestCase):
    def setUp(self):
        node_image.environment |= NOWHERE
        self.cluster = Cluster()
        self.addCleanup(self.cluster.remove)

    def start_nodes(self):
        keys = self.cluster.start("keys")
        output, _ = keys.communicate(timeout=60)
        self.assertEqual(keys.returncode, 0, output)
        for node in ("node0", "node1"):
            self.cluster.start(node)
            self.cluster.wait_until_healthy(node)

    def test_has_no_keys_of_its_own(self):
        for pattern in ("etc/ssh/ssh_host_*", "home/gputrain/.ssh/*", "home/gputrain/.gputrain-node/*"):
            self.assertEqual(list(node_image.root.glob(pattern)), [])

    def test_trains_on_two_hosts_as_compose_says(self):
        self.start_nodes()
        launch = self.cluster.start("launch")
        output, _ = launch.communicate(timeout=300)
        self.assertEqual(launch.returncode, 0, output)
        self.assertIn("2 ranks on node0:1, node1:1", output)
        alone = volume()
        engine = run_image.start(["run", "/jobs/demo.yaml", "--output-dir", "/work/demo"],
                                 volumes={"/work": alone, "/jobs/demo.yaml": ROOT / "docker/demo.yaml"})
        engine.communicate(timeout=300)
        two, one = losses(self.cluster.volumes["work"] / "demo"), losses(alone / "demo")
        self.assertEqual(len(two), 10)
        for a, b in zip(two, one, strict=True):
            self.assertAlmostEqual(a, b, places=4)

    def test_lets_nobody_in_without_the_key(self):
        self.start_nodes()
        stranger = self.cluster.options("launch")
        del stranger["volumes"]["/home/gputrain/.ssh"]
        for words in ([], ["-o", "PreferredAuthentications=password,keyboard-interactive"], ["-l", "root"]):
            done = node_image.run(["ssh", "-o", "BatchMode=yes", *words, "node0", "true"], **stranger)
            self.assertEqual(done.returncode, 255, done.stdout)
            self.assertIn("Permission denied (publickey)", done.stdout)

    def test_without_authorized_keys_says_what_to_mount(self):
        engine = self.cluster.start("node0")
        output, _ = engine.communicate(timeout=60)
        self.assertEqual(engine.returncode, 2)
        self.assertIn("/cluster/authorized_keys cannot be read", output)


if __name__ == "__main__":
    unittest.main()
