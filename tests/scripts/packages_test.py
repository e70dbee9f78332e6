"""Packages in scripts/packages*.txt exist in Debian 12 and Ubuntu 24.04, in sufficient versions, and
scripts/listed_programs.py finds what they bring.

The table is for Ubuntu 24.04 (noble); scripts/fresh_machine.sh tests Debian's names.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import listed_programs  # noqa: E402

NOBLE = {
    "g++": "13.2", "cmake": "3.28.3", "ninja-build": "1.11.1", "ccache": "4.9.1", "mold": "2.30.0", "pkg-config": "1.8.1",
    "python3": "3.12.3", "python3-venv": "3.12.3", "ca-certificates": "20240203", "libyaml-cpp-dev": "0.8.0",
    "libcli11-dev": "2.4.1", "nlohmann-json3-dev": "3.11.3", "libfmt-dev": "9.1.0", "libspdlog-dev": "1.12.0",
    "libpng-dev": "1.6.43", "libjpeg-dev": "8c", "zlib1g-dev": "1.3", "libzstd-dev": "1.5.5", "libxxhash-dev": "0.8.2",
    "libpcre2-dev": "10.42", "libutf8proc-dev": "2.9.0", "libcurl4-openssl-dev": "8.5.0",
    "libssl-dev": "3.0.13",
    "libgtest-dev": "1.14.0", "libgmock-dev": "1.14.0",
    "openmpi-bin": "4.1.6", "mpich": "4.2.0", "slurmctld": "23.11.4", "slurmd": "23.11.4", "slurm-client": "23.11.4",
    "munge": "0.5.15", "iproute2": "6.1.0", "nftables": "1.0.9", "faketime": "0.9.10", "e2fsprogs": "1.47.0", "mount": "2.39.3",
    "openssh-server": "9.6", "openssh-client": "9.6", "debootstrap": "1.0.134", "tini": "0.19.0",
    "prometheus": "2.45.3", "prometheus-alertmanager": "0.26.0", "git": "2.43.0",
    "chromium-browser": "1snap1",
}
AT_LEAST = {"g++": (12,), "cmake": (3, 25), "python3": (3, 10)}


class Packages(unittest.TestCase):
    def lines(self) -> list[list[str]]:
        text = "".join((SCRIPTS / name).read_text() for name in ("packages.txt", "packages-tests.txt"))
        return [line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")]

    def test_each_has_a_name_in_ubuntu(self):
        for names, _ in self.lines():
            self.assertTrue(set(names.split("|")) & NOBLE.keys(), f"{names}: add Ubuntu 24.04's name and version here")

    def test_each_says_what_it_is_for(self):
        for line in self.lines():
            self.assertEqual(len(line), 2, line)

    def test_versions_there_suffice(self):
        for name, least in AT_LEAST.items():
            self.assertGreaterEqual(tuple(map(int, NOBLE[name].split("."))), least)


ANSWER = """\
base-files\tii \trequired\tyes\t\tawk\t
mawk\tii \toptional\tno\tawk\t\tlibc6 (>= 2.34)
libc6\tii \toptional\tno\t\t\t
apt\tii \timportant\tno\t\t\tlibgone (>= 1) | libapt
libapt\tii \toptional\tno\t\t\t
cron\tii \timportant\tno\t\t\t
g++\tii \toptional\tno\tc++-compiler\tgcc-base\tg++-12:any (= 12), cpp [amd64]
g++-12\tii \toptional\tno\t\t\tg++
gcc-base\tii \toptional\tno\t\t\t
cpp\tii \toptional\tno\t\t\t
make\tii \toptional\tno\t\t\t
ninja-build\trc \toptional\tno\t\t\t
"""


class ListedPrograms(unittest.TestCase):
    def closure(self, text: str) -> set[str]:
        return listed_programs.closure(listed_programs.read_packages(ANSWER), listed_programs.read_list(text))

    def test_are_those_of_a_bare_system(self):
        self.assertEqual(self.closure("# nothing\n"), {"base-files", "mawk", "libc6", "apt", "libapt"})

    def test_are_those_of_listed_packages_and_what_they_depend_on(self):
        added = self.closure("g++  the compiler\nninja-build  is not installed\n") - self.closure("")
        self.assertEqual(added, {"g++", "g++-12", "gcc-base", "cpp"})
        self.assertEqual(self.closure("gcc-99|make|cpp  one of them\n") - self.closure(""), {"make"})

    def test_are_no_others_on_this_machine(self):
        if not shutil.which("dpkg-query"):
            self.skipTest("dpkg-query is missing: this is no Debian")
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, SCRIPTS / "listed_programs.py", f"{folder}/bin", SCRIPTS / "packages.txt"]
            subprocess.run(words, check=True, capture_output=True)
            of_debian_gcc = ["c++", "g++"] if pathlib.Path("/usr/bin/g++").exists() else []
            for name in ("bash", "tar", "awk", *of_debian_gcc):
                self.assertTrue(pathlib.Path(folder, "bin", name).exists(), name)
            for name in ("make", "git", "mpirun", "sshd"):
                self.assertFalse(pathlib.Path(folder, "bin", name).is_symlink(), name)


if __name__ == "__main__":
    unittest.main()
