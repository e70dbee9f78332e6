"""Runs what needs a GPU in stages, the most telling first, and writes first.json and the page first.md after each.
Use first.sh, which finds the programs. A stage that has passed in an earlier call is not run again.

usage: first.py --programs FOLDER --tests FOLDER --out FOLDER [--budget SECONDS] [STAGE...]
       first.py --list
Exits with 1 if a stage failed, with 75 if only time was short.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import page

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/bench"))
import compare  # noqa: E402

HERE, COMPARE, SECONDS = ROOT / "scripts/gpu", ROOT / "scripts/bench/compare.py", "SECONDS"
SKIPPED, UNFINISHED, KILLED = 77, 75, (124, 137)
DONE = ("passed", "skipped")
# What most people train, and the seconds that it may take.
COMMON_JOBS = [("lora-packed", 150), ("lora-plain", 120), ("experts", 90), ("lora-long", 150), ("full", 60), ("bert", 60),
           ("vit", 60), ("qlora-packed", 150)]


@dataclass(frozen=True)
class Stage:
    name: str
    seconds: int  # at most
    command: list  # SECONDS in it stands for the time that there is
    timed: bool = False  # counts only on a machine that is alike in all that changes times
    log: str = ""  # a log of its own, which the first attempt begins anew
    says: str = ""  # its line on the page is the last one with this, unless it prints a result


def stages(programs: Path, tests: Path, out: Path) -> list[Stage]:
    gputrain, python = programs / "gputrain", sys.executable
    continuing = ["--continue", "--budget", SECONDS]
    logged = ["--log", out / "first.log"]
    running = [python, HERE / "run_tests.py", tests, out, *logged, "--limit", "240", *continuing, "--only"]
    comparing = [python, COMPARE, "--binary", gputrain, "--output", out / "compare.json", *continuing, "--rounds"]

    def script(name: str, *arguments) -> list:
        return [python, HERE / "stages" / f"{name}.py", *arguments]

    def compared(name: str, seconds: int, *arguments: str) -> Stage:
        return Stage(name, seconds, [*comparing, *arguments], timed=True, says=" round ")

    return [
        Stage("device", 20, ["bash", "-c", f"nvidia-smi; exec '{programs}/gpu_probe' device"]),
        Stage("runs", 80, script("runs", gputrain)),
        Stage("tests", 300, [*running, "gpu_ops", "recording", "device"]),
        Stage("memcheck", 80, script("sanitize", "memcheck", tests, SECONDS)),
        Stage("gpt2-start", 60, script("start", "gpt2", gputrain, SECONDS)),
        compared("gpt2", 45, "1", "--only", "gpt2", "--contenders", "gputrain"),
        Stage("resnet50-start", 170, script("start", "resnet50-bf16", gputrain, SECONDS)),
        compared("resnet50", 45, "1", "--only", "resnet50-bf16", "--contenders", "gputrain"),
        *[Stage(name, seconds, script("workload", name, gputrain, SECONDS), timed=True) for name, seconds in COMMON_JOBS],
        Stage("generation", 150, script("generation", gputrain, SECONDS), timed=True),
        Stage("losses", 120, script("losses", gputrain, "gpt2", "resnet50-bf16")),
        compared("pytorch", 260, "1", "--only", "gpt2", "resnet50-bf16", "--contenders", "eager", "compile"),
        Stage("fp16-start", 200, script("start", "resnet50-fp16", gputrain, SECONDS)),
        compared("fp16", 200, "1", "--only", "resnet50-fp16"),
        compared("rounds", 400, "2"),
        Stage("more-tests", 200, [*running, "nccl", "sharded_on_gpu", "pipeline_on_gpu", "on_gpu"]),
        Stage("racecheck", 80, script("sanitize", "racecheck", tests, SECONDS)),
        Stage("tight", 120, script("tight", "gpt2", gputrain)),
        Stage("probe", 300, [HERE / "probe.sh", "--continue", "--budget", SECONDS], timed=True, log="probe.log"),
    ]


def load(path: Path) -> dict:
    """The object in a JSON file; empty if there is none, or half of one."""
    try:
        found = json.loads(path.read_text())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def replace(path: Path, text: str):
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    os.replace(partial, path)


def judge(stage: Stage, code: int, said: str, seconds: int) -> dict:
    """The stage's entry in first.json, from its exit code, what it printed, and the time that it had."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    results = [json.loads(line.removeprefix("result ")) for line in lines if line.startswith("result {")]
    saying = [" ".join(line.split())[:200] for line in lines if stage.says in line]
    entry = {"says": saying[-1] if saying else "", "problems": []} | (results[-1] if results else {})
    if code in KILLED:
        hung = seconds >= stage.seconds
        entry["problems"] += [f"no end after {seconds} s"] if hung else []
        return entry | {"outcome": "failed" if hung else "unfinished"}
    entry["outcome"] = {0: "passed", SKIPPED: "skipped", UNFINISHED: "unfinished"}.get(code, "failed")
    if entry["outcome"] == "failed" and not entry["problems"]:
        errors = [" ".join(line.split())[:300] for line in lines if "FAILED" in line or line.startswith("error")]
        entry["problems"] = errors[:3] or [f"exit code {code}"]
    return entry


class First:
    """The stages, and what became of them in this call and earlier ones."""

    def __init__(self, out: Path, table: list[Stage], budget: float):
        self.out, self.table, self.deadline, self.machine = out, table, time.time() + budget, compare.machine()
        earlier = load(out / "first.json")
        stages_before = earlier.get("stages", {}).items()
        self.entries = {name: entry for name, entry in stages_before if entry["outcome"] != "not reached"}
        for entry in self.entries.values():
            if entry["outcome"] == "running":  # the call was killed
                entry["outcome"] = "unfinished"
        if earlier and earlier["machine"] != self.machine:
            timed = [stage.name for stage in table if stage.timed and self.entries.pop(stage.name, None)]
            print("another machine or revision; measured anew: " + (" ".join(timed) or "nothing"))

    def run_all(self, asked: list[str]):
        """Runs what is not done; what failed comes last, because it may fail again."""
        wanted = [stage for stage in self.table if stage.name in (asked or [stage.name])]
        left = [stage for stage in wanted if self.outcome(stage) not in DONE]
        for stage in sorted(left, key=lambda stage: self.outcome(stage) == "failed"):
            seconds = int(min(stage.seconds, self.deadline - time.time() - 8))
            if seconds >= 10:
                self.run(stage, seconds)
        self.save()

    def outcome(self, stage: Stage) -> str:
        return self.entries.get(stage.name, {}).get("outcome", "not reached")

    def run(self, stage: Stage, seconds: int):
        if stage.log and stage.name not in self.entries:
            (self.out / stage.log).unlink(missing_ok=True)
        self.entries[stage.name] = {"outcome": "running", "says": "", "problems": []}
        self.save()
        began = time.time()
        command = [str(seconds) if word == SECONDS else str(word) for word in stage.command]
        with (self.out / "first.log").open("ab") as log:  # a file: what outlives a killed stage would keep a pipe open
            log.write(f"\n==== {stage.name}, {time.strftime('%H:%M:%S')}\n".encode())
            log.flush()
            begin = log.tell()
            limited = ["timeout", "--kill-after=5", str(seconds + 3), *command]
            code = subprocess.run(limited, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT,
                                  env=os.environ | {"PYTHONUNBUFFERED": "1"}).returncode
        said = (self.out / "first.log").read_bytes()[begin:].decode(errors="replace")
        entry = judge(stage, code, said, seconds) | {"seconds": round(time.time() - began, 1)}
        self.entries[stage.name] = entry
        self.save()
        line = f"{stage.name:15} {entry['outcome']:10} {entry['seconds']:6.1f} s  {entry['says']}"
        print(line, *entry["problems"], sep="\n    ", flush=True)

    def save(self):
        unknown = {"outcome": "not reached", "says": "", "problems": []}
        found = {stage.name: self.entries.get(stage.name, unknown) for stage in self.table}
        report = {"schema": 1, "machine": self.machine, "written": time.strftime("%Y-%m-%d %H:%M:%S"), "stages": found}
        report |= page.gathered(self.out)
        replace(self.out / "first.json", json.dumps(report, indent=2))
        replace(self.out / "first.md", page.render(report))

    def status(self, asked: list[str]) -> int:
        outcomes = {self.outcome(stage) for stage in self.table if stage.name in (asked or [stage.name])}
        return 1 if "failed" in outcomes else 0 if outcomes <= set(DONE) else UNFINISHED


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("asked", metavar="STAGE", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--budget", type=float, default=540)
    for name in ("programs", "tests", "out"):
        parser.add_argument(f"--{name}", type=Path, default=Path())
    arguments = parser.parse_args()
    table = stages(arguments.programs, arguments.tests, arguments.out)
    if arguments.list:
        print(*(stage.name for stage in table))
        return 0
    first = First(arguments.out, table, arguments.budget)
    first.run_all(arguments.asked)
    return first.status(arguments.asked)


if __name__ == "__main__":
    raise SystemExit(main())
