"""What many ranks cost on one machine, in alternating pairs: the CPU time of `gputrain launch` with one rank against that of
`gputrain run`, and the time in which eight ranks started together have all made a step against that of eight runs which
know nothing of each other.

usage: ranks_cost.py --binary build/release/bin/gputrain [--pairs N] [--steps N]
"""

import argparse
import os
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RANKS = 8
ENVIRONMENT = os.environ | {"GPUTRAIN_METADATA_URL": "aws=http://127.0.0.1:9", "OMP_NUM_THREADS": "1"}
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": ROOT, "env": ENVIRONMENT}


def run(binary: str, folder: str, steps: int) -> list[str]:
    command = [binary, "run", str(ROOT / "configs/quickstart.yaml"), "--output-dir", folder]
    for setting in [f"train.max_steps={steps}", "checkpoint.interval=null", "eval.interval=null", "eval.sample=null",
                    "data.val=null", f"log.interval={max(1, steps // 10)}"]:
        command += ["--set", setting]
    return command


def launched(binary: str, ranks: int, folder: str, steps: int) -> list[str]:
    return [binary, "launch", "--nproc-per-node", str(ranks)] + run(binary, folder, steps)[1:]


def cpu_seconds(command: list[str]) -> float:
    """Of a command and all that it started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, **QUIET)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seconds_of(commands: list[list[str]]) -> float:
    """Until all commands, started at once, have ended."""
    began = time.monotonic()
    processes = [subprocess.Popen(command, **QUIET) for command in commands]
    if any(process.wait() != 0 for process in processes):
        raise SystemExit("a run failed: " + " ".join(commands[0]))
    return time.monotonic() - began


def compare(pairs: int, say: str, one, other) -> float:
    ratios = []
    for pair in range(pairs):
        with tempfile.TemporaryDirectory(prefix="gputrain-ranks-") as folder:
            order = [one, other] if pair % 2 == 0 else [other, one]
            taken = {which: which(f"{folder}/{number}") for number, which in enumerate(order)}
        ratios.append(taken[one] / taken[other])
        print(f"{say}  pair {pair + 1}/{pairs}: {taken[one]:.2f} s, {taken[other]:.2f} s, ratio {ratios[-1]:.3f}", flush=True)
    return statistics.median(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    arguments = parser.parse_args()
    binary, steps = str(Path(arguments.binary).resolve()), arguments.steps
    cost = compare(arguments.pairs, "one rank   ", lambda folder: cpu_seconds(launched(binary, 1, folder, steps)),
                   lambda folder: cpu_seconds(run(binary, folder, steps)))
    start = compare(arguments.pairs, "eight ranks", lambda folder: seconds_of([launched(binary, RANKS, folder, 1)]),
                    lambda folder: seconds_of([run(binary, f"{folder}-{rank}", 1) for rank in range(RANKS)]))
    print(f"CPU time of a launched rank / of a run      {cost:.3f}   goal <= 1.02")
    print(f"start of {RANKS} ranks / of {RANKS} runs                {start:.3f}   goal <= 1.3")


main()
