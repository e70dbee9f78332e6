"""Compares gputrain with PyTorch, eager and compiled, on synthetic data:
same shapes, optimizer, precision and dropout. Programs run in the order A B C, C B A; each times single steps after a
warm-up, on a GPU with events. Prints medians and ratios, and updates the JSON after each run, with clocks and power
while the GPU was busy, if there is an nvidia-smi. A run that the budget cuts off has not failed; it does not count.
Every program trains on one batch repeatedly: PyTorch's stays on the device, gputrain reads it through its loader.

usage: compare.py --output compare.json [--binary gputrain] [--only NAME ...] [--contenders NAME ...] [--steps N]
                  [--warmup N] [--rounds N] [--budget SECONDS] [--continue]
Without --binary only PyTorch is measured. Exits with 1 if a run failed, with 75 if only time was short.
"""

import argparse
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import measure
from measure import OutOfTime, Process

ROOT = Path(__file__).resolve().parents[2]

ADAMW = {"type": "adamw", "lr": 6e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}
SGD = {"type": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}
GPT2 = {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024}
TINY_GPT = {"n_layer": 1, "n_head": 2, "n_embd": 32, "block_size": 32}


def gpt(name: str, sizes: dict, vocab: int, padded: int, batch: int, precision: str, device: str) -> dict:
    return {
        "unit": "tokens/s", "units": batch * sizes["block_size"],
        "twin": {"device": device, "precision": precision, "channels_last": False, "model": {"kind": "gpt", **sizes, "vocab_size": padded},
                 "data": {"kind": "synthetic"}, "batch": batch, "optimizer": ADAMW, "max_grad_norm": 1.0},
        "job": {"schema": 1, "name": name, "device": device, "precision": precision,
                "model": {"type": "gpt", "config": sizes | {"vocab_size": vocab, "pad_vocab_to": padded, "dropout": 0.0}},
                "data": {"train": {"format": "synthetic", "samples": batch, "vocab_size": vocab, "learnable": False}},
                "train": {"max_steps": 1, "global_batch_size": batch, "max_grad_norm": 1.0},
                "optimizer": ADAMW, "lr_scheduler": {"type": "constant"}},
    }


def resnet(name: str, depth: int, size: int, batch: int, precision: str, device: str) -> dict:
    return {
        "unit": "images/s", "units": batch,
        "twin": {"device": device, "precision": precision, "channels_last": True,
                 "model": {"kind": "resnet", "depth": depth, "num_classes": 1000, "cifar_stem": False},
                 "data": {"kind": "synthetic", "size": size}, "batch": batch, "optimizer": SGD, "max_grad_norm": None},
        "job": {"schema": 1, "name": name, "device": device, "precision": precision,
                "model": {"type": f"resnet{depth}", "config": {"num_classes": 1000}},
                "data": {"train": {"format": "synthetic", "samples": batch, "num_classes": 1000, "learnable": False},
                         "image": {"size": size}},
                "train": {"max_steps": 1, "global_batch_size": batch}, "optimizer": SGD, "lr_scheduler": {"type": "constant"}},
    }


def bert(vocab_size: int) -> dict:
    """PyTorch only: a goal to beat."""
    return {
        "unit": "sequences/s", "units": 32, "job": None,
        "twin": {"device": "cuda", "precision": "bf16", "channels_last": False,
                 "model": {"kind": "bert", "vocab_size": vocab_size, "block_size": 512},
                 "data": {"kind": "synthetic"}, "batch": 32, "optimizer": ADAMW, "max_grad_norm": None},
    }


# GPU workloads first. The "tiny" ones run on a CPU in seconds, to test the comparison itself.
WORKLOADS = {
    "gpt2": gpt("compare-gpt2", GPT2, 50257, 50304, 32, "bf16", "cuda"),
    "resnet50-bf16": resnet("compare-resnet50", 50, 224, 256, "bf16", "cuda"),
    "resnet50-fp16": resnet("compare-resnet50", 50, 224, 256, "fp16", "cuda"),
    "bert-30522": bert(30522), "bert-30528": bert(30528),
    "tiny-gpt-fp32": gpt("compare-tiny", TINY_GPT, 250, 256, 4, "fp32", "cpu"),
    "tiny-gpt-bf16": gpt("compare-tiny", TINY_GPT, 250, 256, 4, "bf16", "cpu"),
    "tiny-resnet18-fp32": resnet("compare-tiny", 18, 32, 4, "fp32", "cpu"),
}
ON_GPU = ["gpt2", "resnet50-bf16", "resnet50-fp16"]
CONTENDERS = ["gputrain", "eager", "compile"]
LONGEST_RUN_SECONDS = 300
UNFINISHED = 75


@dataclass
class Run:
    """The step times of one program; `error` if it failed."""
    step_seconds: list[float] = field(default_factory=list)
    first_loss: float = math.nan
    last_loss: float = math.nan
    peak_bytes: int = 0
    gpu: dict | None = None
    error: str | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.step_seconds)

    def __str__(self) -> str:
        return f"FAILED: {self.error.strip().splitlines()[-1]}" if self.error else f"{1e3 * self.median:,.2f} ms a step, loss {self.last_loss:.4f}"


class GpuWatch:
    """Context manager: medians of clocks and power while it is active and the GPU is busy; None without nvidia-smi."""
    FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu")

    def __enter__(self):
        self.process = None
        if shutil.which("nvidia-smi"):
            query = ["nvidia-smi", f"--query-gpu={','.join(self.FIELDS)}", "--format=csv,noheader,nounits", "-lms", "200", "-i", "0"]
            self.file = tempfile.TemporaryFile("w+")
            self.process = subprocess.Popen(query, stdout=self.file, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        self.reading = None
        if self.process is None:
            return
        self.process.terminate()
        self.process.wait()
        self.file.seek(0)
        self.reading = self.medians(self.file.read())

    @classmethod
    def medians(cls, output: str) -> dict[str, float]:
        """Leaves out the readings of an idle GPU: a program that starts slowly would seem to need little power."""
        busy_percent = 90
        lines = [line.split(",") for line in output.splitlines() if line.count(",") == len(cls.FIELDS) - 1]
        rows = [{name: float(text) for name, text in zip(cls.FIELDS, line) if text.strip().replace(".", "", 1).isdigit()} for line in lines]
        rows = [row for row in rows if row.get("utilization.gpu", 100) >= busy_percent] or rows
        columns = {name: [row[name] for row in rows if name in row] for name in cls.FIELDS}
        return {name: statistics.median(values) for name, values in columns.items() if values}


def run_torch(work: dict, compiled: bool, arguments, folder: Path, limit: float) -> Run:
    (folder / "spec.json").write_text(json.dumps(work["twin"] | {
        "compile": compiled, "workers": 0, "timed": True, "warmup": arguments.warmup, "steps": arguments.warmup + arguments.steps}))
    process = Process([sys.executable, str(Path(__file__).parent / "torch_twin.py"), str(folder / "spec.json")], {}, folder / "log", limit)
    entries = [json.loads(line) for line in process.lines() if line.startswith("{")]
    peak = process.finish()
    timed = next(entry for entry in entries if entry["kind"] == "timed")
    return Run(timed["seconds"], timed["first_loss"], timed["last_loss"], timed["peak_bytes"] or peak)


def run_gputrain(work: dict, arguments, folder: Path, limit: float) -> Run:
    job = "\n".join(f"{key}: {json.dumps(value)}" for key, value in work["job"].items())  # JSON is valid YAML
    (folder / "job.yaml").write_text(job)
    process = Process([arguments.binary, "bench", "train", str(folder / "job.yaml"), "--json", "--steps", str(arguments.steps),
                       "--warmup", str(arguments.warmup)], {}, folder / "log", limit)
    text = "".join(process.lines())
    try:
        process.finish()
    except SystemExit:
        if failure := re.search(r'"failure": "(.*)"', text):
            raise ValueError(failure[1])
        raise
    row = json.loads(text)["rows"][0]
    warnings = [line for line in (folder / "log").read_text().splitlines() if line.startswith("warning: ")]
    return Run(row["each"]["seconds"], row["first_loss"], row["last_loss"], row["peak_memory_bytes"], warnings=warnings)


def measured(run, folder: Path, limit: float) -> Run:
    folder.mkdir(parents=True, exist_ok=True)
    with GpuWatch() as watch:
        try:
            result = run(folder, limit)
        except OutOfTime as stopped:
            if limit < LONGEST_RUN_SECONDS:
                raise
            result = Run(error=str(stopped))
        except (Exception, SystemExit) as failure:  # continue with the other programs
            result = Run(error=f"{type(failure).__name__}: {failure}")
    result.gpu = watch.reading
    return result


def ratio(ours: list[Run], theirs: list[Run], value) -> float:
    """Median over rounds of ours / theirs."""
    return statistics.median(value(a) / value(b) for a, b in zip(ours, theirs))


def summarize(work: dict, results: dict[str, list[Run]]) -> dict:
    good = {name: [run for run in runs if not run.error] for name, runs in results.items()}
    good = {name: runs for name, runs in good.items() if runs}
    entry = {"unit": work["unit"], "contenders": {}, "gputrain_over": {}, "runs": {name: [asdict(run) for run in runs] for name, runs in results.items()}}
    for name, runs in good.items():
        step = statistics.median(run.median for run in runs)
        entry["contenders"][name] = {"step_seconds": step, "rate": work["units"] / step, "peak_bytes": max(run.peak_bytes for run in runs),
                                     "first_loss": runs[0].first_loss, "last_loss": runs[0].last_loss, "gpu": runs[-1].gpu}
    for name in good:
        if name != "gputrain" and "gputrain" in good:
            entry["gputrain_over"][name] = {"speed": ratio(good[name], good["gputrain"], lambda run: run.median),
                                            "memory": ratio(good["gputrain"], good[name], lambda run: run.peak_bytes)}
    return entry


def program_of(contender: str, work: dict, arguments):
    """A function that runs the program in a folder with a limit in seconds; None if the program does not support this
    work."""
    if contender == "gputrain":
        return (lambda at, limit: run_gputrain(work, arguments, at, limit)) if arguments.binary and work["job"] else None
    return lambda at, limit: run_torch(work, contender == "compile", arguments, at, limit)


def read(path: Path) -> dict:
    """An earlier report; empty if the file is cut off."""
    try:
        return json.loads(path.read_text())
    except ValueError:
        return {}


class Comparison:
    """The runs of all workloads and programs; writes them to the file after each run."""

    def __init__(self, arguments):
        self.arguments, self.deadline = arguments, time.time() + arguments.budget
        self.heading = {"schema": 1, "machine": machine(), "steps": arguments.steps, "warmup": arguments.warmup, "rounds": arguments.rounds}
        self.runs = {name: {key: [] for key in CONTENDERS if key in arguments.contenders and program_of(key, WORKLOADS[name], arguments)}
                     for name in arguments.only}
        self.longest, self.missed = {}, []
        if getattr(arguments, "continue") and arguments.output.exists():
            self.take_up(read(arguments.output))

    def take_up(self, earlier: dict):
        """Takes over the successful runs of an earlier call; sets them aside if its settings or machine were others."""
        if any(earlier.get(key) != self.heading[key] for key in ("machine", "steps", "warmup")):
            aside = self.arguments.output.with_name(self.arguments.output.name + ".before")
            os.replace(self.arguments.output, aside)
            print(f"{self.arguments.output} was measured with other settings or on another machine; it is now {aside}")
            return
        for entry in earlier["results"]:
            for contender, runs in entry["runs"].items():
                good = [Run(**run) for run in runs if not run["error"]]
                self.runs.setdefault(entry["workload"], {}).setdefault(contender, []).extend(good)

    def run_all(self, folder: Path):
        """Runs round 1 of all workloads, then round 2, and so on."""
        for turn in range(self.arguments.rounds):
            for name in self.arguments.only:
                for contender in CONTENDERS if turn % 2 == 0 else reversed(CONTENDERS):
                    if contender in self.arguments.contenders and contender in self.runs[name] and len(self.runs[name][contender]) <= turn:
                        self.run_one(name, contender, turn, folder / f"{name}-{contender}{turn}")

    def run_one(self, name: str, contender: str, turn: int, folder: Path):
        left, started = self.deadline - time.time(), time.time()
        if left < max(10.0, 1.2 * self.longest.get((name, contender), 0.0)):
            self.missed.append(f"{name} {contender}")
            return
        where = f"{name:18} round {turn + 1}/{self.arguments.rounds}: {contender}"
        try:
            result = measured(program_of(contender, WORKLOADS[name], self.arguments), folder, min(LONGEST_RUN_SECONDS, left))
        except OutOfTime:
            self.longest[name, contender] = time.time() - started
            self.missed.append(f"{name} {contender}")
            print(f"{where} unfinished: the time was up after {time.time() - started:.0f} s", flush=True)
            return
        self.longest[name, contender] = time.time() - started
        self.runs[name][contender].append(result)
        self.write()
        print(f"{where} {result}, {time.time() - started:.0f} s in all", *result.warnings, sep="\n  ", flush=True)

    def report(self) -> dict:
        return self.heading | {"results": [{"workload": name} | summarize(WORKLOADS[name], runs) for name, runs in self.runs.items()]}

    def write(self):
        partial = self.arguments.output.with_suffix(".partial")
        partial.write_text(json.dumps(self.report(), indent=2))
        os.replace(partial, self.arguments.output)


def machine() -> dict:
    found = measure.machine()
    packed = ROOT / ".carry/revision"
    if not found["revision"] and packed.exists():
        found["revision"] = packed.read_text().strip()
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,power.limit,clocks.max.sm", "--format=csv,noheader"]
    found["gpu"] = subprocess.run(query, capture_output=True, text=True).stdout.strip() if shutil.which("nvidia-smi") else None
    return found


def print_table(report: dict):
    print(f"\n{report['machine']['gpu'] or report['machine']['cpu']}, torch {report['machine']['torch']}, {report['machine']['revision']}")
    print(f"{'workload':18} {'program':9} {'step':>12} {'rate':>20} {'memory':>10} {'first loss':>10} {'last loss':>10}  SM clock, power")
    for entry in report["results"]:
        for name, got in entry["contenders"].items():
            gpu = got["gpu"] or {}
            state = f"{gpu.get('clocks.sm', 0):.0f} MHz, {gpu.get('power.draw', 0):.0f} W" if gpu else "-"
            print(f"{entry['workload']:18} {name:9} {1e3 * got['step_seconds']:9,.2f} ms {got['rate']:10,.0f} {entry['unit']:9}"
                  f" {got['peak_bytes'] / 2**20:6,.0f} MiB {got['first_loss']:10.4f} {got['last_loss']:10.4f}  {state}")
        for name, runs in entry["runs"].items():
            if name not in entry["contenders"]:
                print(f"{entry['workload']:18} {name:9} {runs[0]['error'].strip().splitlines()[-1] if runs else 'no time was left'}")
        for name, over in entry["gputrain_over"].items():
            print(f"{entry['workload']:18} gputrain is {over['speed']:.3f}x {name}, with {over['memory']:.2f}x its memory")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--binary")
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS), default=ON_GPU)
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--steps", type=int, default=30, help="measured steps of a run")
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--budget", type=float, default=3600, help="seconds; no run starts that is likely to end later")
    parser.add_argument("--continue", action="store_true", help="keep the good runs in --output, and add what is missing")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    comparison = Comparison(arguments)
    with tempfile.TemporaryDirectory(prefix="gputrain-compare-") as folder:
        comparison.run_all(Path(folder))
    report = comparison.report()
    print(f"\nall numbers: {arguments.output}")
    print_table(report)
    if comparison.missed:
        print("no time for: " + ", ".join(comparison.missed))
    failed = any(run["error"] for entry in report["results"] for runs in entry["runs"].values() for run in runs)
    return 1 if failed else UNFINISHED if comparison.missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
