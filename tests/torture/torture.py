#!/usr/bin/env python3
"""Trains one small job again and again while it is killed, runs out of disk space, gets I/O errors, or its checkpoints
are damaged.

After every attempt, judges the checkpoints from their bytes (verifier.py). The attempt counts as lost unless
  - the newest valid checkpoint from before is still there, or a newer one;
  - the program resumed from exactly the newest valid one, and named every newer one that it skipped;
  - its exit code and message are the promised ones (promises.py), and no process of it is left;
  - a finished run's weights, last checkpoint and metrics equal those of an undisturbed run.
Prints `tried / survived / lost`; exits with 1 if anything was lost.

With --mesh, the job has several ranks, which write each checkpoint together (jobs.py). Then a kill hits a rank, the
launcher or all processes; an operation fails in one of the ranks, each in turn; damage hits the file of any rank. After
a power cut all processes are gone, and what one rank has not synced may be lost. That others lose theirs at the same
moment is left out: a rank does not know what the others have not synced.
"""

import argparse
import collections
import errno
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import damage
import promises
import verifier
from jobs import MESHES, ONE_RANK, SAVE_INTERVAL
from run_folder import Attempt, Disk, Operation, Outcome, ReadOnly, RunFolder, enter_own_mounts

ERRORS = [errno.ENOSPC, errno.EIO, errno.EROFS]
DAMAGES = {"cut short": damage.cut_short, "bit flip": damage.flip_bit, "zeroed page": damage.zero_page,
           "lost file": damage.lose_file, "swapped files": damage.swap_files}
BY_OPERATION = ["kill before", "kill after", "torn write", "power cut", "error once", "errors", "hiccup"]
BY_OTHER_OPERATION = ["kill, other files", "power cut, other files", "error, other files"]
KINDS = ["kill any time", *BY_OPERATION, *BY_OTHER_OPERATION, *DAMAGES, "debris", "full disk", "read-only"]
NEED_MOUNTS = {"full disk", "read-only"}


class Lost(Exception):
    """A broken promise."""


def require(condition: bool, what: str) -> None:
    if not condition:
        raise Lost(what)


class Reference:
    """Results of an undisturbed run, and its number of operations."""

    def __init__(self, folder: RunFolder):
        outcome = folder.start(FOLDER=folder.area).wait()
        require(outcome.code == 0, f"the undisturbed run failed with {outcome.code}: {outcome.err}")
        good, bad = folder.judged()
        require(good[:1] == [folder.job.steps] and len(good) == promises.KEEP_LAST and not bad, f"it left {good}, bad {bad}")
        self.weights, self.curve = folder.weights(), folder.curve()
        self.tensors = self.last_tensors(folder)
        operations = [one for one in outcome.operations if one.rank in folder.job.names_of_ranks]
        kinds = folder.kinds_of(operations)
        self.of_checkpoints = sorted(kind for kind in kinds if kind.path.startswith("/run/ckpt/"))
        self.of_other_files = sorted(kinds - set(self.of_checkpoints))
        counts = collections.Counter(one.rank for one in operations)
        self.per_save = {rank: count * SAVE_INTERVAL // folder.job.steps for rank, count in counts.items()}
        seen = {kind.name for kind in self.of_checkpoints}
        require({"write", "fsync", "rename"} <= seen, f"of what the program does to checkpoints only {seen} is seen")

    @staticmethod
    def last_tensors(folder: RunFolder) -> dict[str, bytes]:
        newest = verifier.good_folders(folder.checkpoints)[0][0]
        return {path.name: path.read_bytes() for path in newest.glob("*.safetensors")}


class Torture:
    def __init__(self, options, mounts: bool):
        self.options, self.mounts = options, mounts
        self.job = MESHES[options.mesh] if options.mesh else ONE_RANK
        self.tried, self.lost = collections.Counter(), collections.Counter()
        self.hit: set[Operation] = set()
        self.disks = 0
        self.folder = self.fresh_folder()
        self.reference = Reference(self.folder)
        self.drop_folder()

    def fresh_folder(self) -> RunFolder:
        self.disks += 1
        self.curve_is_whole = True
        disk = Disk(self.options.workdir / f"disk{self.disks}", self.mounts)
        return RunFolder(disk, self.options.binary, self.options.faults, self.job)

    def drop_folder(self) -> None:
        self.folder.disk.remove()

    def kinds_of_round(self, number: int) -> list[str]:
        kinds = [kind for kind in KINDS if self.options.only in (None, kind) and (self.mounts or kind not in NEED_MOUNTS)]
        chance = random.Random(f"{self.options.seed}/{number}")
        return chance.sample(kinds, len(kinds)) if len(kinds) > 1 else kinds * 10

    def round(self, number: int) -> None:
        """One attempt of each kind at one job, then an undisturbed one."""
        self.folder = self.fresh_folder()
        self.dealt = collections.Counter({True: number * len(BY_OTHER_OPERATION), False: number * len(BY_OPERATION)})
        for index, kind in enumerate(self.kinds_of_round(number)):
            if self.disturbed() >= self.options.kills and self.options.round is None:
                break
            chance = random.Random(f"{self.options.seed}/{number}/{index}")
            self.guarded(kind, f"round {number}, attempt {index + 1}, {kind}", lambda: self.attempt(kind, chance))
        self.guarded(None, f"round {number}, the last attempt", self.finish)
        self.drop_folder()

    def guarded(self, kind: str | None, title: str, action) -> None:
        self.story = []
        before = self.lost.total()
        try:
            was_disturbed = action()
        except Lost as failure:
            was_disturbed = True
            self.lost[kind or "undisturbed"] += 1
            self.report(title, failure)
        if kind is None:
            self.tried["undisturbed"] += 1
        elif was_disturbed:
            self.tried[kind] += 1
        if self.options.verbose:
            print(f"{title}: {'; '.join(self.story)}", flush=True)
        if self.lost.total() > before:
            self.start_over()

    def report(self, title: str, failure: Lost) -> None:
        kept = self.options.workdir / f"lost{self.lost.total()}"
        shutil.copytree(self.folder.disk.path, kept, symlinks=True)
        again = f"{sys.argv[0]} --binary {self.options.binary} --faults {self.options.faults} --seed {self.options.seed}"
        again += f" --mesh {self.options.mesh}" if self.options.mesh else ""
        again += f" --round {title.split()[1].rstrip(',')}" + (f" --only '{self.options.only}'" if self.options.only else "")
        print(f"LOST {title}: {failure}\n  done: {'; '.join(self.story)}\n  left: {kept}\n  again: {again}", flush=True)

    def attempt(self, kind: str, chance: random.Random) -> bool:
        """One disturbed attempt; False if it ended before the disturbance."""
        if kind in DAMAGES or kind == "debris":
            self.prepare(2)
            if kind == "debris":
                self.story.append(damage.leave_debris(self.folder.checkpoints, chance))
            else:
                self.story.append(damage.damage(self.folder.checkpoints, DAMAGES[kind], chance))
        elif kind == "read-only":
            self.prepare(1)
        elif kind.startswith("power cut") and chance.random() < 0.3:  # new run folders also have names to lose
            self.start_over()
        self.before = self.folder.judged()
        outcome, came, promise = self.disturb(kind, chance)
        self.check(self.before, outcome, self.codes(promise) if came else {0})
        self.start_over_if_done(outcome)
        return came

    def start_over_if_done(self, outcome: Outcome) -> None:
        if outcome.code == promises.DONE:
            self.check_result()
            self.start_over()

    def start_over(self) -> None:
        self.drop_folder()
        self.folder = self.fresh_folder()
        self.before = self.folder.judged()

    def prepare(self, checkpoints: int) -> None:
        """Undisturbed saves until there are this many valid checkpoints."""
        while len(self.folder.judged()[0]) < checkpoints:
            before = self.folder.judged()
            stop = self.stop_soon(self.job.names_of_ranks[0])
            outcome = self.folder.start(FOLDER=self.folder.area, **stop).wait()
            self.check(before, outcome, self.codes("go on"))
            self.start_over_if_done(outcome)

    def stop_soon(self, rank: str) -> dict:
        """Settings of the library: this rank stops the job after about two saves, or two saves after the fault."""
        return {**self.only_in(rank), "STOP_AFTER": 2 * self.reference.per_save[rank]}

    def only_in(self, rank: str) -> dict:
        return {"RANK": rank} if self.job.is_launched else {}

    def codes(self, promise: str) -> set[int]:
        return promises.exit_codes(promise, self.job.is_launched)

    def disturb(self, kind: str, chance: random.Random) -> tuple[Outcome, bool, str]:
        """The outcome, whether the disturbance happened, and the key of EXIT_CODES that then applies."""
        if kind == "kill any time":
            return self.kill_any_time(chance)
        if kind == "full disk":
            return self.fill_disk(chance)
        if kind == "read-only":
            return self.turn_read_only(chance)
        return self.at_operation(kind, chance)

    def at_operation(self, kind: str, chance: random.Random) -> tuple[Outcome, bool, str]:
        cut = chance.choice(["cut-before", "cut-after"])
        what, promise = {
            "torn write": ("torn", "kill"),
            "kill after": ("kill-after", "kill"),
            "power cut": (cut, "kill all"),
            "power cut, other files": (cut, "kill all"),
            "error once": ("error", "error once"),
            "errors": ("errors", "errors"),
            "error, other files": ("error", "error in the run folder"),
            "hiccup": (chance.choice(["short", "interrupt"]), "go on"),
        }.get(kind, ("kill-before", "kill"))
        others = kind in BY_OTHER_OPERATION
        rank, name, path = card = self.deal(others)
        if others and (name == "mkdir" or not path):  # only in new run folders
            self.start_over()
        at = 1 if others else chance.randint(1, 30 if name == "write" else 3)
        error, keep_last = chance.choice(ERRORS), chance.choice([1, promises.KEEP_LAST])
        faults = {"FOLDER": self.folder.area, "ON": f"{name} {self.folder.area}{path}", "AT": at, "DO": what, "ERROR": error,
                  "SEED": chance.getrandbits(63), **self.only_in(rank)}
        if not promise.startswith("kill"):
            faults |= self.stop_soon(rank)
        settings = {"checkpoint.keep_last": keep_last, **(self.job.for_lasting_errors if what == "errors" else {})}
        outcome = self.start(settings, **faults).wait()
        self.story.append(f"{what} at {card} the {at}., keeping {keep_last}")
        if outcome.fault:
            self.hit |= self.folder.kinds_of([outcome.fault])
            if what in ("error", "errors"):
                self.story.append(os.strerror(error))
                self.check_message(outcome, error, must_tell=not others and not promises.may_pass_in_silence(*outcome.fault[1:]))
        if others and not promise.startswith("kill"):
            self.curve_is_whole = False
        return outcome, outcome.fault is not None, promise

    def deal(self, others: bool) -> Operation:
        """Deals all operations in turn, shuffled, so that each comes up equally often."""
        cards = self.reference.of_other_files if others else self.reference.of_checkpoints
        self.dealt[others] += 1
        return random.Random(f"{self.options.seed}/cards").sample(cards, len(cards))[self.dealt[others] % len(cards)]

    def start(self, settings: dict = {}, **faults) -> Attempt:
        if self.options.lie:
            faults["LIE"] = 1
        return self.folder.start(settings, **faults)

    def kill_any_time(self, chance: random.Random) -> tuple[Outcome, bool, str]:
        lines, seconds, victim = chance.randint(0, 8), chance.random(), chance.choice(self.job.victims)
        attempt = self.folder.start()
        attempt.wait_for_steps(lines)
        time.sleep(seconds * (0.01 if lines else 0.3))
        attempt.kill(victim)
        outcome = attempt.wait()
        self.story.append(f"killed after {lines} log lines: {victim}")
        return outcome, outcome.code != promises.DONE, "kill" if victim in self.job.names_of_ranks else "kill all"

    def fill_disk(self, chance: random.Random) -> tuple[Outcome, bool, str]:
        save_bytes = sum(map(len, self.reference.tensors.values()))
        attempt = self.folder.start()
        attempt.wait_for_steps(chance.randint(0, 4))
        room = chance.randint(0, int(1.5 * save_bytes))
        self.folder.disk.leave_room(room)
        outcome = attempt.wait()
        self.folder.disk.leave_plenty()
        self.story.append(f"room for {room} bytes, a checkpoint has {save_bytes}")
        self.curve_is_whole = False
        self.check_message(outcome, errno.ENOSPC)
        return outcome, True, "full disk"

    def turn_read_only(self, chance: random.Random) -> tuple[Outcome, bool, str]:
        with ReadOnly(self.folder.checkpoints) as mount:
            attempt = self.folder.start()
            attempt.wait_for_steps(chance.randint(0, 4))
            turned = False
            while attempt.is_running() and not turned:
                turned = mount.turn()
            outcome = attempt.wait()
        self.story.append("turned read-only" if turned else "ended before it could turn read-only")
        self.check_message(outcome, errno.EROFS)
        return outcome, turned, "read-only"

    @staticmethod
    def check_message(outcome: Outcome, error: int, must_tell: bool = False) -> None:
        """A failed attempt must name the cause; with `must_tell`, also one that continued."""
        named = any(cause in outcome.err for cause in promises.CAUSES[error])
        is_due = must_tell or outcome.code in promises.ERROR_CODES
        require(named or not is_due, f"no message names the cause, {os.strerror(error)}: {outcome.err}")

    def check(self, before: tuple[list[int], dict[str, str]], outcome: Outcome, codes: set[int]) -> None:
        good_before, bad_before = before
        good, _ = self.folder.judged()
        self.story.append(f"exit {outcome.code}, resumed from {outcome.resumed_from}, good {good_before} -> {good}")
        require(outcome.code is not None, "it hung")
        require(not outcome.left, f"processes outlive the launcher: {outcome.left}")
        require(outcome.code in codes, f"exit {outcome.code} instead of one of {sorted(codes)}: {outcome.err[-500:]}")
        require(max(good, default=0) >= max(good_before, default=0), f"of {good_before} only {good} are good; {self.folder.judged()[1]}")
        require(max(good, default=0) >= outcome.durable_step, f"{outcome.durable_step} was saved, but {good} are good")
        if promises.STARTED_FRESH.search(outcome.out):
            require(not good_before, f"it started over although {good_before} are good")
        elif outcome.resumed_from is not None:
            newest = max(good_before, default=None)
            require(outcome.resumed_from == newest, f"it resumed from {outcome.resumed_from} instead of {newest}")
        if promises.STARTED_FRESH.search(outcome.out) or outcome.resumed_from is not None:
            for name in bad_before:
                if verifier.step_of(name) > max(good_before, default=0):
                    require(name in outcome.err, f"it does not say that it passed over {name}")
        if self.folder.weights() is not None:
            self.require_whole(self.folder.weights())

    @staticmethod
    def require_whole(weights: bytes) -> None:
        try:
            verifier.check_safetensors(weights)
        except (verifier.Bad, ValueError, LookupError) as problem:
            raise Lost(f"model.safetensors is half written: {problem}") from problem

    def check_result(self) -> None:
        require(self.folder.weights() == self.reference.weights, "the weights differ from the undisturbed run's")
        good, _ = self.folder.judged()
        require(good[:1] == [self.job.steps], f"the last checkpoint is {good[:1]}")
        require(Reference.last_tensors(self.folder) == self.reference.tensors, "the last checkpoint differs")
        if self.curve_is_whole:
            require(self.folder.curve() == self.reference.curve, "the curve differs")

    def finish(self) -> bool:
        before = self.folder.judged()
        outcome = self.folder.start().wait()
        self.check(before, outcome, {0})
        self.check_result()
        return True

    def disturbed(self) -> int:
        return sum(self.tried[kind] for kind in KINDS)

    def run(self) -> int:
        number = self.options.round or 0
        while self.options.round is not None or self.disturbed() < self.options.kills:
            self.round(number)
            number += 1
            if self.options.round is not None:
                break
        return self.summary()

    def summary(self) -> int:
        for kind in [*KINDS, "undisturbed"]:
            if self.tried[kind]:
                tried, lost = self.tried[kind], self.lost[kind]
                print(f"{kind:22} tried {tried:4}  survived {tried - lost:4}  lost {lost}")
        if self.options.only is None:
            for what, kinds in {"checkpoints": self.reference.of_checkpoints, "other files": self.reference.of_other_files}.items():
                missed = [str(kind) for kind in kinds if kind not in self.hit]
                print(f"of {len(kinds)} operations on {what}, {len(kinds) - len(missed)} were made to fail, not: {', '.join(missed) or '-'}")
        tried = self.disturbed()
        lost = self.lost.total()
        print(f"seed {self.options.seed}: tried {tried} / survived {tried - sum(self.lost[kind] for kind in KINDS)} / lost {lost}")
        return 1 if lost or not tried else 0


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True, help="the gputrain program")
    parser.add_argument("--faults", type=Path, required=True, help="the library to preload, built from preload.cpp")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=300, help="disturbed attempts in all")
    parser.add_argument("--mesh", choices=MESHES, help="a job of several ranks; default: one rank")
    parser.add_argument("--only", choices=KINDS, help="one kind of disturbance")
    parser.add_argument("--round", type=int, help="this round alone, to look at one that lost something")
    parser.add_argument("--workdir", type=Path, help="default: a temporary folder")
    parser.add_argument("--lie", action="store_true", help="let every sync do nothing; succeeds when that is noticed")
    parser.add_argument("--verbose", action="store_true", help="a line per attempt")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    options.workdir = Path(tempfile.mkdtemp(prefix="torture-", dir=options.workdir)).resolve()
    options.binary, options.faults = options.binary.resolve(), options.faults.resolve()
    mounts = True
    try:
        enter_own_mounts()
    except OSError as error:
        mounts = False
        reason = f"{'here not even' if os.getuid() == 0 else 'only'} root may mount file systems ({error})"
        print(f"Skipped\n{reason}\n[  SKIPPED ] Torture.FullDisk\nSkipped\n{reason}\n[  SKIPPED ] Torture.ReadOnly")
    begin = time.monotonic()
    try:
        code = Torture(options, mounts).run()
    except Lost as failure:
        print(f"LOST before anything was disturbed: {failure}")
        code = 1
    print(f"took {time.monotonic() - begin:.0f} s")
    if options.lie:
        code = 1 - code
    if code == 0:
        shutil.rmtree(options.workdir)
    return code


if __name__ == "__main__":
    sys.exit(main())
