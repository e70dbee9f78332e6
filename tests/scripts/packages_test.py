"""Packages in scripts/packages*.txt exist in Debian 12 and Ubuntu 24.04, in sufficient versions.

The table is for Ubuntu 24.04 (noble); scripts/fresh_machine.sh tests Debian's names.
"""
import pathlib
import unittest

NOBLE = {
    "g++": "13.2", "cmake": "3.28.3", "ninja-build": "1.11.1", "ccache": "4.9.1", "mold": "2.30.0", "pkg-config": "1.8.1",
    "python3": "3.12.3", "python3-venv": "3.12.3", "ca-certificates": "20240203", "libyaml-cpp-dev": "0.8.0",
    "libcli11-dev": "2.4.1", "nlohmann-json3-dev": "3.11.3", "libfmt-dev": "9.1.0", "libspdlog-dev": "1.12.0",
    "libpng-dev": "1.6.43", "libjpeg-dev": "8c", "zlib1g-dev": "1.3", "libxxhash-dev": "0.8.2",
    "libpcre2-dev": "10.42", "libutf8proc-dev": "2.9.0", "libcurl4-openssl-dev": "8.5.0",
    "libssl-dev": "3.0.13",
    "libgtest-dev": "1.14.0", "libgmock-dev": "1.14.0",
    "openmpi-bin": "4.1.6", "mpich": "4.2.0", "slurmctld": "23.11.4", "slurmd": "23.11.4", "slurm-client": "23.11.4",
    "munge": "0.5.15", "iproute2": "6.1.0", "nftables": "1.0.9", "faketime": "0.9.10", "e2fsprogs": "1.47.0", "mount": "2.39.3",
    "openssh-server": "9.6", "openssh-client": "9.6", "debootstrap": "1.0.134", "tini": "0.19.0",
    "prometheus": "2.45.3", "prometheus-alertmanager": "0.26.0",
}
AT_LEAST = {"g++": (12,), "cmake": (3, 25), "python3": (3, 10)}


class Packages(unittest.TestCase):
    def lines(self) -> list[list[str]]:
        scripts = pathlib.Path(__file__).resolve().parents[2] / "scripts"
        text = "".join((scripts / name).read_text() for name in ("packages.txt", "packages-tests.txt"))
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


if __name__ == "__main__":
    unittest.main()
