"""Runs one training program, PyTorch or gputrain, and measures it from outside: rate per step interval, seconds from
start to the end of the first step, resident memory just before the first step, and peak memory."""

import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class Result:
    rate: float  # samples or tokens per second, median over the intervals after warm-up
    first_step_seconds: float
    ready_bytes: int  # resident memory before the first step
    peak_bytes: int
    first_loss: float
    last_loss: float

    def as_dict(self) -> dict:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.rate:,.1f}, first step after {self.first_step_seconds:.2f} s"


def machine() -> dict:
    """The machine, for a report. The revision is empty outside a clone or without git."""
    cpu = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    describe = ["git", "describe", "--always", "--dirty"]
    revision = subprocess.run(describe, cwd=Path(__file__).parent, capture_output=True,
                              text=True).stdout.strip() if shutil.which("git") else ""
    return {"cpu": cpu, "torch": importlib.metadata.version("torch"), "revision": revision}


def resident_bytes(pid: int) -> int:
    """Memory of the process, plus what its children (loader workers) do not share."""
    total = 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            total += int(line.split()[1]) * 1024
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        for line in Path(f"/proc/{child}/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_"):
                total += int(line.split()[1]) * 1024
    return total


class OutOfTime(SystemExit):
    """The program was stopped because its time was up."""


class Process:
    """A running program; its stdout is read line by line."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path, limit_seconds: float = 900):
        self.started = time.time()
        self.log = log.open("w")
        self.child = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=self.log,
                                      text=True, bufsize=1)
        self.limit_seconds, self.is_stopped = limit_seconds, False
        self.timer = threading.Timer(limit_seconds, self.stop)
        self.timer.daemon = True
        self.timer.start()

    def stop(self):
        self.is_stopped = True
        self.child.kill()

    def lines(self):
        for line in self.child.stdout:
            self.log.write(line)
            yield line

    def finish(self) -> int:
        """Waits for the end; returns the peak resident memory in bytes."""
        _, status, usage = os.wait4(self.child.pid, 0)
        self.timer.cancel()
        self.child.returncode = os.waitstatus_to_exitcode(status)
        self.log.close()
        if self.child.returncode != 0 and self.is_stopped:
            raise OutOfTime(f"no end after {self.limit_seconds:.0f} s")
        if self.child.returncode != 0:
            tail = Path(self.log.name).read_text().splitlines()[-20:]
            raise SystemExit(f"{' '.join(self.child.args)}\nended with {self.child.returncode}:\n" + "\n".join(tail))
        return usage.ru_maxrss * 1024


def median_rate(points: list[tuple[int, float]], units_per_step: int) -> float:
    """Rate from (step, time) points. The first fifth, at least two points, is warm-up."""
    points = points[max(2, len(points) // 5):]
    rates = [(b[0] - a[0]) * units_per_step / (b[1] - a[1]) for a, b in zip(points, points[1:])]
    if not rates:
        raise SystemExit("too few steps to measure a rate")
    return statistics.median(rates)


def run_torch(python: str, spec: dict, units_per_step: int, environment: dict, folder: Path) -> Result:
    folder.mkdir(parents=True, exist_ok=True)
    spec_path = folder / "spec.json"
    spec_path.write_text(json.dumps(spec, indent=2))
    process = Process([python, str(Path(__file__).parent / "torch_twin.py"), str(spec_path)], environment, folder / "log")
    ready, steps = 0, []
    for line in process.lines():
        entry = json.loads(line)
        if entry["kind"] == "ready":
            ready = resident_bytes(process.child.pid)
        else:
            steps.append(entry)
    peak = process.finish()
    return Result(
        rate=median_rate([(entry["step"], entry["time"]) for entry in steps], units_per_step),
        first_step_seconds=steps[0]["time"] - process.started,
        ready_bytes=ready, peak_bytes=peak,
        first_loss=steps[0]["loss"], last_loss=steps[-1]["loss"],
    )


def run_gputrain(binary: str, job: str, units_per_step: int, environment: dict, folder: Path) -> Result:
    """`job` is YAML text. Use the same log interval as the twin."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.yaml").write_text(job)
    run_folder = folder / "run"
    process = Process([binary, "run", str(folder / "job.yaml"), "--output-dir", str(run_folder)], environment, folder / "log")
    ready, stepping = 0, False
    for line in process.lines():
        stepping = stepping or line.startswith("step ")
        if not stepping:  # memory after the last line before the first step
            ready = resident_bytes(process.child.pid)
    peak = process.finish()
    summary = json.loads((run_folder / "summary.json").read_text())
    entries = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    steps = [entry for entry in entries if entry["kind"] == "train"]
    return Result(
        rate=median_rate([(entry["step"], entry["time"]) for entry in steps], units_per_step),
        first_step_seconds=summary["first_step_seconds"],
        ready_bytes=ready, peak_bytes=peak,
        first_loss=steps[0]["train/loss"], last_loss=steps[-1]["train/loss"],
    )


def alternate(contenders: dict, rounds: int, say) -> dict[str, list]:
    """Runs every contender once per round, in the order A B C, C B A, A B C, ..., so that a drift of the machine
    favours none. `contenders` maps a name to a function of the round's number."""
    results = {name: [] for name in contenders}
    for number in range(rounds):
        for name in list(contenders) if number % 2 == 0 else reversed(contenders):
            result = contenders[name](number)
            results[name].append(result)
            say(f"round {number + 1}/{rounds}: {name} {result}")
    return results


def ratios(ours: list[Result], theirs: list[Result]) -> dict[str, float]:
    """Medians over rounds of ours / theirs."""
    return {
        name: statistics.median(getattr(a, field) / getattr(b, field) for a, b in zip(ours, theirs))
        for name, field in (("throughput", "rate"), ("start to first step", "first_step_seconds"),
                            ("memory before first step", "ready_bytes"), ("peak memory", "peak_bytes"))
        if ours and theirs
    }
