"""Runs jobs with gputrain for the stages of first.sh, and says what a stage found."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


def say_result(says: str, problems: Sequence[str] = (), **facts):
    """The stage's line on the page; first.py takes the last one that a stage has printed."""
    print("result " + json.dumps({"says": says, "problems": list(problems), **facts}), flush=True)


@dataclass
class Run:
    """An ended run of gputrain."""

    code: int
    seconds: float
    output: str
    losses: list[float] = field(default_factory=list)  # one per step, if every step is logged
    gradient_norms: list[float] = field(default_factory=list)
    summary: dict = field(default_factory=dict)
    log: str = ""  # of rank 0

    @property
    def trouble(self) -> str:
        """Why it failed, on one line; empty if it did not."""
        if self.code == 0:
            return ""
        lines = self.output.splitlines()
        errors = [line for line in lines if line.startswith("error")] or lines[-1:]
        return f"exit code {self.code}: {' '.join(errors)[:300]}"


def write_job(folder: Path, job: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.yaml"
    path.write_text("\n".join(f"{key}: {json.dumps(value)}" for key, value in job.items()))  # JSON is valid YAML
    return path


def numbers(entries: list[dict], name: str) -> list[float]:
    found = [entry.get(name) for entry in entries]
    return [float("nan") if number is None else number for number in found]


def read_run(folder: Path, code: int, seconds: float, output: str) -> Run:
    run = Run(code, seconds, output)
    if (folder / "metrics.jsonl").exists():
        lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
        entries = [json.loads(line) for line in lines if line.endswith("\n")]  # a kill may have cut the last one off
        steps = [entry for entry in entries if entry["kind"] == "train"]
        run.losses, run.gradient_norms = numbers(steps, "train/loss"), numbers(steps, "train/grad_norm")
    if (folder / "summary.json").exists():
        run.summary = json.loads((folder / "summary.json").read_text())
    if (folder / "logs/rank_0000.log").exists():
        run.log = (folder / "logs/rank_0000.log").read_text(errors="replace")
    return run


def train(binary: str, job: Path, folder: Path, *options: str, limit: float = 600, stop_at: str = "",
          **environment: str) -> Run:
    """Trains `job` into `folder`. Sends SIGTERM once a line contains `stop_at`, SIGKILL after `limit` seconds. Prints
    what gputrain prints."""
    command = [binary, "run", str(job), "--output-dir", str(folder), *options]
    print("$ " + " ".join(command), *(f"{name}={value}" for name, value in environment.items()), flush=True)
    started, output = time.time(), folder.with_suffix(".out")
    with output.open("w") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=os.environ | environment)
        while child.poll() is None:
            time.sleep(0.05)
            if stop_at and stop_at in output.read_text(errors="replace"):
                child.send_signal(signal.SIGTERM)
                stop_at = ""
            if time.time() - started > limit:
                child.kill()
    said = output.read_text(errors="replace")
    print(said, flush=True)
    return read_run(folder, child.wait(), time.time() - started, said)
