"""What docker/assemble.sh collects runs in a root folder that has nothing else but the C and C++ libraries.

Needs a build in the folder GPUTRAIN_BUILD.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GPUTRAIN_BUILD", ROOT / "build/release"))
PACKAGES = next(ROOT.glob(".deps/lib/python3*/site-packages"))  # with torch
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"  # where Debian's and Ubuntu's libcurl looks
ENTER = ["unshare", "--mount", "--pid", "--fork", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def setUpModule():
    global root
    tried = subprocess.run([*ENTER, "true"], capture_output=True, text=True)
    if tried.returncode:
        raise unittest.SkipTest(f"not possible here: {tried.stderr.strip()}")
    root = pathlib.Path(tempfile.mkdtemp(prefix="gputrain_assembled_"))
    unittest.addModuleCleanup(shutil.rmtree, root)
    assembled = root / "opt/gputrain"
    subprocess.run([ROOT / "docker/assemble.sh", "--build", BUILD, assembled], check=True)
    for folder in ("proc", "tmp", "dev", "work"):
        (root / folder).mkdir()
    loaded = subprocess.run(["ldd", assembled / "bin/gputrain", assembled / "lib/libgputrain.so"], check=True,
                            capture_output=True, text=True).stdout
    for library in set(re.findall(r"(?:=> |^\t)(/\S+) \(", loaded, re.MULTILINE)):
        if not library.startswith(str(root)):
            place = root / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)


def gputrain(*words: str, **environment: str) -> tuple[int, str]:
    """Runs the program there with an environment of these variables alone."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    script = 'mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec env -i "$@"'
    done = subprocess.run([*ENTER, "sh", "-c", script, root, *variables, "/usr/sbin/chroot", root,
                           "/opt/gputrain/bin/gputrain", *words],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


class TheAssembledProgram(unittest.TestCase):
    def must(self, *words: str, **environment: str) -> str:
        code, output = gputrain(*words, **environment)
        self.assertEqual(code, 0, output)
        return output

    def test_leaves_only_the_libraries_of_c_and_cpp_to_the_system(self):
        outside = {path.name for path in root.rglob("*.so*") if root / "opt" not in path.parents}
        allowed = ("ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0 libresolv.so.2 "
                   "libutil.so.1 libgcc_s.so.1 libstdc++.so.6")
        self.assertLessEqual(outside, set(allowed.split()))

    def owner(self, library: pathlib.Path) -> str:
        """The folder of the licence of a library, by who installed it here: pip or dpkg."""
        for record in PACKAGES.glob("*.dist-info/RECORD"):
            if f"\n{library}," in "\n" + record.read_text():
                return record.parent.name.removesuffix(".dist-info")
        found = subprocess.run(["dpkg", "-S", f"*/{library.name}"], check=True, capture_output=True, text=True).stdout
        return [line for line in found.splitlines() if not line.startswith("diversion")][0].split(":")[0]

    def test_has_a_licence_for_each_library_and_for_headers_that_are_compiled_in(self):
        assembled = root / "opt/gputrain"
        licenses = assembled / "share/gputrain/licenses"
        libraries = [path.relative_to(assembled / "lib") for path in (assembled / "lib").rglob("*.so*")]
        for library in libraries:
            if not library.name.startswith("libgputrain"):
                self.assertTrue(any((licenses / self.owner(library)).iterdir()), library)
        for package in re.findall(r"^(\S+-dev) ", (ROOT / "scripts/packages.txt").read_text(), re.MULTILINE):
            if package not in ("libgtest-dev", "libgmock-dev"):
                names = {package}
                for _ in range(2):  # libjpeg-dev -> libjpeg62-turbo-dev -> libjpeg62-turbo
                    depends = subprocess.run(["dpkg-query", "-W", "-f", "${Depends} ", *names], capture_output=True, text=True)
                    names |= set(re.findall(r"[a-z][a-z0-9+.-]+", depends.stdout))
                self.assertTrue(any((licenses / name).exists() for name in names - {"libc6"}), names)

    def test_says_where_sources_are_and_has_the_licences_that_others_refer_to(self):
        licenses = root / "opt/gputrain/share/gputrain/licenses"
        self.assertRegex((licenses / "packages.txt").read_text(), r"(?m)^libcurl\S+ \S+, source package curl \S+ of (Debian|Ubuntu) ")
        texts = "".join(path.read_text() for path in licenses.glob("*/copyright"))
        named = set(re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", texts))
        self.assertIn("GPL-2", named)
        self.assertEqual({path.name for path in (licenses / "common-licenses").iterdir()}, named)

    def test_says_its_version(self):
        self.assertRegex(self.must("--version"), r"^gputrain \d")

    def test_trains(self):
        shutil.copy(ROOT / "docker/demo.yaml", root / "work/demo.yaml")
        self.must("run", "/work/demo.yaml", "--output-dir", "/work/run", "--set", "train.max_steps=2")
        self.assertTrue((root / "work/run/model.safetensors").exists())
        self.assertTrue((root / "work/run/ckpt/step-00000002").is_dir())

    def test_fetches_a_model_over_https(self):
        served = root / "served/org/model"
        served.mkdir(parents=True)
        (root / "state").mkdir()
        (served / "config.json").write_text("{}")
        (served / "model.safetensors").write_bytes(b"weights" * 1000)
        own = root / "state/own.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=hub", "-days", "2",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", own, "-out", own],
                       check=True, capture_output=True)
        with subprocess.Popen(["python3", ROOT / "tests/support/fake_hub.py", root / "served", root / "state", own],
                              stdout=subprocess.PIPE, text=True) as hub:
            self.addCleanup(hub.kill)
            self.assertEqual(hub.stdout.readline(), "listening\n")
            environment = {"HF_ENDPOINT": (root / "state/address").read_text(), "HF_HOME": "/work/hf"}
            code, output = gputrain("fetch", "org/model", **environment)
            self.assertNotEqual(code, 0)
            self.assertRegex(output, "certificate")
            (root / CERTIFICATES).parent.mkdir(parents=True)
            shutil.copy(own, root / CERTIFICATES)
            self.must("fetch", "org/model", **environment)
            hub.kill()
        fetched = root / "work/hf/hub/models--org--model/snapshots"
        self.assertEqual([path.stat().st_size for path in fetched.glob("*/model.safetensors")], [7000])


if __name__ == "__main__":
    unittest.main()
