"""The job under torture, its run folder on a small disk, and one attempt to run it."""

import ctypes
import dataclasses
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import promises
import verifier
from jobs import Job

DISK_BYTES = 16 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 1, 32, 4096, 16384, 1 << 18, 2


def _call(function: str, *arguments) -> None:
    if getattr(_libc, function)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{function}: {os.strerror(code)}")


def enter_own_mounts() -> None:
    """Enters a mount namespace: only this process and its children see its mounts, which disappear with them."""
    user, group = os.getuid(), os.getgid()
    if user == 0:
        _call("unshare", _CLONE_NEWNS)
    else:
        _call("unshare", _CLONE_NEWNS | _CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)


class Disk:
    """A folder; with `mounts`, a tmpfs that can be filled."""

    def __init__(self, path: Path, mounts: bool):
        self.path, self.mounts = path, mounts
        path.mkdir(parents=True)
        if mounts:
            _call("mount", b"tmpfs", bytes(path), b"tmpfs", 0, f"size={DISK_BYTES}".encode())

    def leave_room(self, size: int) -> None:
        """Shrinks the disk so that only `size` bytes are free."""
        while True:
            status = os.statvfs(self.path)
            try:
                return self._resize((status.f_blocks - status.f_bfree) * status.f_frsize + size)
            except OSError as error:
                if error.errno != errno.EINVAL:  # EINVAL: more space is in use by now
                    raise

    def leave_plenty(self) -> None:
        self._resize(DISK_BYTES)

    def _resize(self, size: int) -> None:
        _call("mount", b"tmpfs", bytes(self.path), b"tmpfs", _MS_REMOUNT, f"size={size}".encode())

    def remove(self) -> None:
        if self.mounts:
            _call("umount2", bytes(self.path), _MNT_DETACH)
        shutil.rmtree(self.path)


class ReadOnly:
    """Makes a folder its own mount, which can become read-only under a running program."""

    def __init__(self, folder: Path):
        self._folder = bytes(folder)

    def __enter__(self):
        _call("mount", self._folder, self._folder, None, _MS_BIND, None)
        return self

    def turn(self) -> bool:
        """False if a file there is open for writing."""
        try:
            _call("mount", None, self._folder, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY, None)
            return True
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False

    def __exit__(self, *_):
        _call("umount2", self._folder, _MNT_DETACH)


class Operation(NamedTuple):
    """What the preloaded library saw."""

    rank: str  # "-" if the process is none of several ranks
    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.name} {self.path}" + (f" of rank {self.rank}" if self.rank != "-" else "")


@dataclasses.dataclass
class Outcome:
    code: int | None  # None: timed out
    out: str
    err: str
    operations: list[Operation]
    fault: Operation | None  # the first one that failed on purpose
    left: list[int]  # processes that outlived the launcher for too long

    @property
    def durable_step(self) -> int:
        """The newest checkpoint in place when the program started the next one."""
        in_place = durable = 0
        for _, name, path in self.operations:
            begun, finished = re.search(r"/ckpt/step-\d+\.partial$", path), re.search(r"/ckpt/step-(\d+)(?:-\d+)?$", path)
            if name == "rename" and finished:
                in_place = int(finished[1])
            elif name == "mkdir" and begun:
                durable = in_place
        return durable

    @property
    def resumed_from(self) -> int | None:
        found = promises.RESUMED.search(self.out)
        if found and int(found[2].removeprefix("step-")) != int(found[1].replace(",", "")):
            return -1  # it mistook one checkpoint for another
        return int(found[1].replace(",", "")) if found else None


class Attempt:
    """A running job; `faults` are settings of the preloaded library without their prefix."""

    def __init__(self, folder: "RunFolder", settings: dict, faults: dict):
        outside = folder.disk.path.parent
        self._log, self._out, self._err = outside / "operations", outside / "out", outside / "err"
        self._log.unlink(missing_ok=True)
        self._timeout = folder.job.timeout_seconds
        environment = dict(os.environ, OMP_NUM_THREADS="1", FAULTS_LOG=str(self._log))
        if faults:
            environment.update(LD_PRELOAD=str(folder.library), FAULTS_SPARE=str(folder.spare))
            environment.update({f"FAULTS_{name}": str(value) for name, value in faults.items()})
        with open(self._out, "w") as out, open(self._err, "w") as err:
            command = folder.job.command(folder.binary, folder.job_file, folder.path, settings)
            self._process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_for_steps(self, count: int) -> bool:
        """Waits for this many step lines in the log; False if the program ended before."""
        while len(promises.STEP_LINE.findall(self._out.read_text())) < count:
            if not self.is_running():
                return False
            time.sleep(0.0005)
        return True

    def kill(self, victim: str = "all") -> None:
        """`victim`: one of Job.victims."""
        if victim in ("all", "launcher"):  # the launcher first, so that it too ends by this signal
            self._process.send_signal(signal.SIGKILL)
        for process in [] if victim == "launcher" else self._processes():
            if victim == "all" or f"RANK={victim}".encode() in _environment_of(process):
                _kill(process)

    def _processes(self) -> list[int]:
        """All processes of the job know this log."""
        mark = b"FAULTS_LOG=" + bytes(self._log)
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if mark in _environment_of(int(path.name))]

    def _left(self) -> list[int]:
        """Waits for the processes of a launcher that has ended, and ends those that stay."""
        end = time.monotonic() + promises.SECONDS_UNTIL_ALL_ARE_GONE
        while (left := self._processes()) and time.monotonic() < end:
            time.sleep(0.01)
        while self._processes():
            self.kill()
        return left

    def wait(self) -> Outcome:
        try:
            code = self._process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
            code = None
        left = self._left()
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        operations = [_operation_of(line) for line in lines if not line.startswith("fault ")]
        fault = next((_operation_of(line.removeprefix("fault ")) for line in lines if line.startswith("fault ")), None)
        return Outcome(code, self._out.read_text(), self._err.read_text(), operations, fault, left)


def _operation_of(line: str) -> Operation:
    rank, _, name, path = line.split(" ", 3)
    return Operation(rank, name, path)


def _environment_of(process: int) -> list[bytes]:
    """Empty if it has ended."""
    try:
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


class RunFolder:
    def __init__(self, disk: Disk, binary: Path, library: Path, job: Job):
        self.disk, self.binary, self.library, self.job = disk, binary, library, job
        self.spare, self.area = disk.path / "spare", disk.path / "area"
        self.path, self.checkpoints, self.job_file = self.area / "run", self.area / "run/ckpt", disk.path / "job.yaml"
        self.spare.mkdir()
        self.area.mkdir()
        text = disk.path / "text.txt"
        text.write_text("".join(f"the {i % 10} cats sat on the mat {i % 7} times;\n" for i in range(200)))
        self.job_file.write_text(job.text(text, promises.KEEP_LAST))

    def start(self, settings: dict = {}, **faults) -> Attempt:
        return Attempt(self, settings, faults)

    def judged(self) -> tuple[list[int], dict[str, str]]:
        return verifier.good_and_bad(self.checkpoints)

    def weights(self) -> bytes | None:
        path = self.path / "model.safetensors"
        return path.read_bytes() if path.exists() else None

    def curve(self) -> list[dict]:
        rows = [json.loads(line) for line in (self.path / "metrics.jsonl").read_text().splitlines()]
        return [{key: row[key] for key in row if not promises.depends_on_clock(key)} for row in rows if row["kind"] != "event"]

    def kinds_of(self, operations: list[Operation]) -> set[Operation]:
        """Their paths are below `area`; step numbers become wildcards for fnmatch."""
        prefix = str(self.area)
        return {Operation(rank, name, re.sub(r"\d{8}", "?" * 8, path[len(prefix):])) for rank, name, path in operations}
