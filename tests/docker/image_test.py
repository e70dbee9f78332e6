"""Runs the images' stages without a container engine: the result can train and needs nothing else.

Needs root, debootstrap and a build in the folder GPUTRAIN_BUILD, which stands for the first stage. With the variable
GPUTRAIN_IMAGE_BUILD that stage is executed, too: a download of 1 GB and a build.
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
from image import Image, children_of, first_of, make_base, signal_to, suite_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GPUTRAIN_BUILD", ROOT / "build/release"))
CACHE = BUILD / "debootstrap"
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


def for_cpus() -> dict[str, str]:
    """The arguments with which compose.yaml builds the image for CPUs."""
    import yaml
    return yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]["node0"]["build"]["args"]


def built(stage: dockerfile.Stage, arguments: dict[str, str]) -> pathlib.Path:
    """Sets up and builds in a bare system, as the first stage does. Returns its root folder."""
    make_base(suite_of(dockerfile.expand(stage.base, arguments)), folder / "build", CACHE)
    image = Image(folder / "build")
    image.environment["PIP_CERT"] = "/etc/ssl/certs/ca-certificates.crt"  # for a proxy that signs with an own authority
    image.build(stage, ROOT, arguments=for_cpus())
    return image.root


def setUpModule():
    global folder, run_image, node_image
    if reason := missing():
        raise unittest.SkipTest(reason)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gputrain_image_", dir=os.environ.get("TMPDIR", "/var/tmp")))
    unittest.addModuleCleanup(shutil.rmtree, folder)
    file = dockerfile.read((ROOT / "docker/Dockerfile").read_text())
    stages = {stage.name: stage for stage in file.stages}
    assembled = folder / "gputrain"
    if os.environ.get("GPUTRAIN_IMAGE_BUILD"):
        assembled = built(stages["build"], file.arguments) / "opt/gputrain"
    else:
        subprocess.run([ROOT / "docker/assemble.sh", "--build", BUILD, assembled], check=True)
    make_base(suite_of(dockerfile.expand(stages["run"].base, file.arguments | for_cpus())), folder / "run", CACHE)
    run_image = Image(folder / "run")
    run_image.build(stages["run"], ROOT, {"/opt/gputrain": assembled})
    subprocess.run(["cp", "-al", folder / "run", folder / "node"], check=True)
    node_image = Image(folder / "node")
    for name in ("environment", "folder"):
        setattr(node_image, name, getattr(run_image, name))
    node_image.build(stages["node"], ROOT)


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

    def start_endless(self) -> subprocess.Popen:
        """Returns when the run takes steps."""
        engine = run_image.start(["run", "/jobs/demo.yaml", "--output-dir", "/work/demo", "--set",
                                  "train.max_steps=1000000"], volumes=self.volumes)
        self.addCleanup(engine.communicate)
        self.addCleanup(lambda: engine.poll() is None and signal_to(engine, signal.SIGKILL))
        for line in engine.stdout:
            if line.startswith("step"):
                return engine
        self.fail("the run ended")

    def test_saves_when_it_is_stopped(self):
        engine = self.start_endless()
        signal_to(engine, signal.SIGTERM)
        output, _ = engine.communicate(timeout=60)
        self.assertEqual(engine.returncode, 143, output)
        self.assertTrue((self.work / "demo/ckpt/latest").exists())

    def test_collects_orphans(self):
        first = first_of(self.start_endless())
        run = children_of(first)
        # Like `docker exec`: a process whose parent ends at once, so that PID 1 has to adopt and to collect it.
        subprocess.run(["nsenter", f"--target={first}", "--pid", "/bin/sh", "-c", "sleep infinity &"],
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        orphans = set(children_of(first)) - set(run)
        self.assertEqual(len(orphans), 1)
        os.kill(orphans.pop(), signal.SIGKILL)
        until(lambda: children_of(first) == run, "PID 1 leaves a zombie")

    def test_fetches_a_model_with_the_certificates_that_the_system_trusts(self):
        served, own = self.work / "served", self.work / "own.pem"
        (served / "org/model").mkdir(parents=True)
        (served / "org/model/config.json").write_text("{}")
        (served / "org/model/model.safetensors").write_bytes(b"weights" * 1000)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=hub", "-days", "2",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", own, "-out", own], check=True, capture_output=True)
        hub = subprocess.Popen(["python3", ROOT / "tests/support/fake_hub.py", served, self.work, own],
                               stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (hub.kill(), hub.communicate()))
        self.assertEqual(hub.stdout.readline(), "listening\n")
        run_image.environment |= {"HF_ENDPOINT": (self.work / "address").read_text(), "HF_HOME": "/work/hf"}
        fetch = ["gputrain", "fetch", "org/model"]
        self.assertRegex(run_image.run(fetch, volumes=self.volumes).stdout, "certificate")
        run_image.run(["sh", "-c", "cp /work/own.pem /usr/local/share/ca-certificates/own.crt && update-ca-certificates"],
                      check=True, user="root", volumes=self.volumes)
        run_image.run(fetch, check=True, volumes=self.volumes)

    def test_says_how_it_is_used(self):
        engine = run_image.start()
        output, _ = engine.communicate(timeout=60)
        self.assertEqual(engine.returncode, 0, output)
        self.assertRegex(output, "(?m)^ +launch ")


def until(reached, complaint: str):
    """Asks again and again, because nothing tells of it."""
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end, complaint
        time.sleep(0.05)


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
        def is_healthy() -> bool:
            assert self.engines[service].poll() is None, self.engines[service].communicate()[0]
            return not subprocess.run(["ip", "netns", "exec", self.prefix + service, *check], stderr=subprocess.DEVNULL).returncode
        until(is_healthy, f"{service} is not healthy")

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
