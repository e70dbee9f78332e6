"""Executes a Dockerfile's stages in a folder, and runs processes there like a container engine.

A plain Debian from debootstrap replaces the base image. util-linux provides what the engine adds to a process: mount,
PID and UTS namespaces, a user, an environment, volumes.
"""
import os
import pathlib
import shutil
import subprocess

import dockerfile


class Image:
    """A root folder, and the process settings of its Dockerfile."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        self.user, self.folder, self.entrypoint, self.command = "root", "/", [], []

    def build(self, stage: dockerfile.Stage, context: pathlib.Path, other_stages: dict[str, pathlib.Path]):
        """`other_stages` maps each path that a COPY --from takes to its place on this machine."""
        for one in stage.instructions[1:]:
            match one.word:
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
        return self.root / path.lstrip("/")

    def copy(self, one: dockerfile.Instruction, context: pathlib.Path, other_stages: dict[str, pathlib.Path]):
        if "--from=" in one.text:
            _, source, destination = one.words()
            shutil.copytree(other_stages[source], self.inside(destination), symlinks=True, dirs_exist_ok=True)
            return
        files, missing, destination = dockerfile.sources(one, context)
        assert not missing, missing
        for name in files:
            place = self.inside(destination)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(context / name, place)

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


def signal_to(engine: subprocess.Popen, number: int):
    """Sends a signal to a container's PID 1, like an engine; `unshare` would not forward it."""
    children = pathlib.Path(f"/proc/{engine.pid}/task/{engine.pid}/children").read_text().split()
    for process in children:
        os.kill(int(process), number)
