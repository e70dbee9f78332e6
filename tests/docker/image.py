"""Executes a Dockerfile's stages in a folder, and runs processes there like a container engine.

A bare system from debootstrap, of the base image's distribution, replaces that image. util-linux provides what the engine
adds to a process: mount, PID and UTS namespaces, a user, an environment, volumes.
"""
import os
import pathlib
import re
import shutil
import subprocess

import dockerfile

SUITES = {"debian12": "bookworm", "ubuntu22.04": "jammy", "ubuntu24.04": "noble"}
AUTHORITIES = pathlib.Path("/usr/local/share/ca-certificates")  # this machine's own, for a proxy that signs with one


def suite_of(image: str) -> str:
    """The distribution of a base image: noble for ubuntu:24.04 and for nvidia/cuda:13.0.2-base-ubuntu24.04."""
    found = re.search(r"(debian|ubuntu):?([\d.]+)$", image)
    if not found or found[1] + found[2] not in SUITES:
        raise ValueError(f"{image} is none of {', '.join(SUITES)}")
    return SUITES[found[1] + found[2]]


def make_base(suite: str, root: pathlib.Path, cache: pathlib.Path):
    """Makes a system of the smallest set of packages, with what reaches the networks from here. `cache` keeps packages."""
    cache.mkdir(exist_ok=True)
    # By script, because a debootstrap need not know the names of later systems. Images of Ubuntu have universe, too.
    mirror, components, script = (("http://deb.debian.org/debian", "main", "sid") if suite == "bookworm" else
                                  ("http://archive.ubuntu.com/ubuntu", "main,universe", "gutsy"))
    # A mount namespace, because debootstrap mounts /proc and leaves it mounted if it is interrupted.
    subprocess.run(["unshare", "--mount", "debootstrap", "--variant=minbase", f"--components={components}",
                    f"--cache-dir={cache}", suite, root, mirror, f"/usr/share/debootstrap/scripts/{script}"], check=True,
                   stdout=subprocess.DEVNULL)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    for path in [*AUTHORITIES.glob("*.crt"), *pathlib.Path("/etc/apt/apt.conf.d").glob("*proxy*")]:
        place = root / path.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)


class Image:
    """A root folder, and the process settings of its Dockerfile."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        self.user, self.folder, self.entrypoint, self.command = "root", "/", [], []

    def build(self, stage: dockerfile.Stage, context: pathlib.Path, other_stages: dict[str, pathlib.Path] = {},
              arguments: dict[str, str] = {}):
        """`other_stages` maps each path that a COPY --from takes to its place on this machine. `arguments` are those of
        --build-arg."""
        for one in stage.instructions[1:]:
            match one.word:
                case "ARG":
                    name, _, value = one.text.partition("=")
                    self.environment[name] = arguments.get(name, value)
                case "RUN":
                    self.run(["/bin/sh", "-c", one.text], check=True)
                case "COPY":
                    self.copy(one, context, other_stages)
                case "ENV":
                    self.environment |= dict(word.split("=", 1) for word in one.words())
                case "USER":
                    self.user = one.text
                case "WORKDIR":
                    self.folder = one.text
                    self.inside(one.text).mkdir(parents=True, exist_ok=True)
                case "ENTRYPOINT":
                    self.entrypoint, self.command = one.words(), []
                case "CMD":
                    self.command = one.words()
                case "EXPOSE":
                    pass
                case _:
                    raise ValueError(f"line {one.line}: {one.word} is not known here")

    def inside(self, path: str) -> pathlib.Path:
        return self.root / os.path.join(self.folder, path).lstrip("/")

    def copy(self, one: dockerfile.Instruction, context: pathlib.Path, other_stages: dict[str, pathlib.Path]):
        if "--from=" in one.text:
            _, source, destination = one.words()
            shutil.copytree(other_stages[source], self.inside(destination), symlinks=True, dirs_exist_ok=True)
            return
        files, missing, destination = dockerfile.sources(one, context)
        assert not missing, missing
        for name in files:
            place = self.inside(destination)
            if name == ".":
                self.copy_context(context, place)
                continue
            if destination.endswith("/"):
                place /= pathlib.Path(name).name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(context / name, place)

    @staticmethod
    def copy_context(context: pathlib.Path, place: pathlib.Path):
        patterns = dockerfile.ignored(context)

        def hidden(folder: str, names: list[str]) -> list[str]:
            inner = pathlib.Path(folder).relative_to(context)
            return [name for name in names if dockerfile.is_ignored(str(inner / name), patterns) or name == "__pycache__"]
        shutil.copytree(context, place, symlinks=True, dirs_exist_ok=True, ignore=hidden)

    def words_for(self, command: list[str], *, volumes: dict[str, str] = {}, user: str | None = None,
                  hostname: str = "container", network: str | None = None) -> list[str]:
        """The command line that starts `command` as PID 1 of a container. `volumes` maps folders inside to folders on
        this machine. `network` names a network namespace."""
        mounts = "".join(f'mount --bind "{here}" "{self.inside(inside)}" && ' for inside, here in volumes.items())
        settings = " ".join(f"{name}='{value}'" for name, value in self.environment.items())
        user = user or self.user
        numbers = self.numbers_of(user)
        home = f"/home/{user}" if self.inside(f"/home/{user}").exists() else "/"
        script = (f'{mounts}mount -t proc proc "{self.inside("/proc")}" && '
                  f'mount -t tmpfs tmpfs "{self.inside("/dev/shm")}" && hostname {hostname} && '
                  f'exec chroot --userspec={numbers} --groups= "{self.root}" /usr/bin/env -i {settings} '
                  f'HOME={home} HOSTNAME={hostname} /bin/sh -c \'cd "$0" && exec "$@"\' "{self.folder}" "$@"')
        for inside, here in volumes.items():
            place = self.inside(inside)
            (place if pathlib.Path(here).is_dir() else place.parent).mkdir(parents=True, exist_ok=True)
            if pathlib.Path(here).is_file():
                place.touch()
        entering = ["ip", "netns", "exec", network] if network else []
        return [*entering, "unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "/bin/sh", "-c",
                script, "container", *command]

    def numbers_of(self, user: str) -> str:
        for line in self.inside("/etc/passwd").read_text().splitlines():
            name, _, uid, gid, *_ = line.split(":")
            if name == user:
                return f"{uid}:{gid}"
        return user if ":" in user else f"{user}:{user}"

    def run(self, command: list[str], *, check: bool = False, **options) -> subprocess.CompletedProcess:
        done = subprocess.run(self.words_for(command, **options), text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if check and done.returncode != 0:
            raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout}")
        return done

    def start(self, arguments: list[str] | None = None, **options) -> subprocess.Popen:
        """Like `docker run IMAGE ARGUMENTS...`."""
        command = self.entrypoint + (self.command if arguments is None else arguments)
        return subprocess.Popen(self.words_for(command, **options), text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def children_of(process: int) -> list[int]:
    return [int(child) for child in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def first_of(engine: subprocess.Popen) -> int:
    """The container's PID 1, by its number outside."""
    return children_of(engine.pid)[0]


def signal_to(engine: subprocess.Popen, number: int):
    """Sends a signal to a container's PID 1, like an engine; `unshare` would not forward it."""
    for process in children_of(engine.pid):
        os.kill(process, number)
