"""Makes a folder of links to the programs of a bare Debian and of the packages that lists like scripts/packages.txt name.

With that folder as PATH, a program that no list brings is missing as it would be on a new machine. Libraries and headers
are not hidden.

usage: listed_programs.py FOLDER LIST...
"""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

BINARIES = {"/usr/bin", "/usr/sbin", "/bin", "/sbin"}
ALTERNATIVES = "/etc/alternatives/"
FIELDS = ("Package", "db:Status-Abbrev", "Priority", "Essential", "Provides", "Pre-Depends", "Depends")


@dataclasses.dataclass
class Package:
    """An installed package."""

    is_base: bool  # installed by debootstrap --variant=minbase
    provides: list[str]
    needs: list[list[str]]  # one of each inner list is enough


def names_in(field: str) -> list[list[str]]:
    """Reads a field of dependencies: "a (>= 1) | b, c:any" is [[a, b], [c]]."""
    parts = [part for part in field.split(",") if part.strip()]
    return [[re.split(r"[ (:]", choice.strip())[0] for choice in part.split("|")] for part in parts]


def read_packages(answer: str) -> dict[str, Package]:
    """Reads what `dpkg-query --show` says of FIELDS, a package a line."""
    packages = {}
    for line in answer.splitlines():
        name, state, priority, essential, provides, before, needs = line.split("\t")
        if state.startswith("ii"):
            is_base = priority == "required" or essential == "yes" or name == "apt"
            packages[name] = Package(is_base, [one for [one] in names_in(provides)], names_in(before) + names_in(needs))
    return packages


def read_list(text: str) -> list[list[str]]:
    """Reads a list of packages: of each inner list, the first one that is installed counts."""
    return [line.split()[0].split("|") for line in text.splitlines() if line and not line.startswith("#")]


def closure(packages: dict[str, Package], listed: list[list[str]]) -> set[str]:
    """Finds the base system, the listed packages, and all that these depend on."""
    providers = {}
    for name, package in packages.items():
        for provided in (name, *package.provides):
            providers.setdefault(provided, []).append(name)

    def first(choices: list[str]) -> list[str]:
        return next((providers[choice] for choice in choices if choice in providers), [])

    found, waiting = set(), [name for name, package in packages.items() if package.is_base]
    for choices in listed:
        waiting += first(choices)
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            for choices in packages[name].needs:
                waiting += first(choices)
    return found


def programs(files: set[str]) -> dict[str, str]:
    """Maps the names of programs to their places. `files` are those of the packages; which of several programs a name
    of update-alternatives means, no package says."""
    found = {}
    for path in files:
        folder, name = os.path.split(path)
        if folder in BINARIES and os.access(path, os.X_OK):
            found[name] = path
    for folder in BINARIES:
        for link in pathlib.Path(folder).iterdir():
            if link.name in found or not link.is_symlink() or not os.readlink(link).startswith(ALTERNATIVES):
                continue
            record = pathlib.Path("/var/lib/dpkg/alternatives", link.name)
            choices = [os.readlink(os.readlink(link)), *(record.read_text().split("\n") if record.exists() else [])]
            chosen = [one for one in choices if one in files and os.access(one, os.X_OK)]
            if chosen:
                found[link.name] = chosen[0]
    return found


def ask(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(folder: str, *lists: str):
    packages = read_packages(ask("dpkg-query", "--show", "-f", "\t".join(f"${{{field}}}" for field in FIELDS) + "\n"))
    listed = [entry for file in lists for entry in read_list(pathlib.Path(file).read_text())]
    found = closure(packages, listed)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, path in programs(set(ask("dpkg", "--listfiles", *sorted(found)).splitlines())).items():
        os.symlink(path, f"{folder}/{name}")
    print(f"{len(os.listdir(folder))} programs of {len(found)} packages in {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
