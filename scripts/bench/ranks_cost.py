"""Measures what many ranks cost on one machine.
CPU time: `gputrain launch` with one rank against `gputrain run`, at the same time on one core each. They swap cores
from pair to pair, so that a drift of the clocks affects both. Start: the time until eight ranks of one job have made a
step, against eight independent runs, in alternating pairs.

usage: ranks_cost.py --binary build/release/bin/gputrain [--pairs N] [--steps N]
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from measure import alternate

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


def cpu_seconds(commands: list[list[str]], cores: list[int]) -> list[float]:
    """CPU time of each command and its children. All run at the same time, each on its core."""
    processes = [subprocess.Popen(["taskset", "--cpu-list", str(core)] + command, **QUIET)
                 for command, core in zip(commands, cores)]
    ends = [os.wait4(process.pid, 0) for process in processes]
    for process, (_, status, _) in zip(processes, ends):
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit("a run failed: " + " ".join(process.args))
    return [usage.ru_utime + usage.ru_stime for _, _, usage in ends]


def seconds_of(commands: list[list[str]]) -> float:
    """Seconds until all commands, started together, have ended."""
    began = time.monotonic()
    processes = [subprocess.Popen(command, **QUIET) for command in commands]
    if any([process.wait() != 0 for process in processes]):
        raise SystemExit("a run failed: " + " ".join(commands[0]))
    return round(time.monotonic() - began, 3)


def side_by_side(pairs: int, binary: str, steps: int, folder: str) -> float:
    """CPU time of a launched rank / of a run: median over pairs that swap their cores."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("this needs two cores, to run both sides at once")
    ratios = []
    for pair in range(pairs):
        sides = [launched(binary, 1, f"{folder}/launched-{pair}", steps), run(binary, f"{folder}/run-{pair}", steps)]
        one, other = cpu_seconds(sides, cores if pair % 2 == 0 else cores[::-1])
        ratios.append(one / other)
        print(f"pair {pair + 1}/{pairs}: launched {one:.2f} s, run {other:.2f} s, ratio {ratios[-1]:.3f}", flush=True)
    return statistics.median(ratios)


def in_turn(pairs: int, binary: str, folder: str) -> float:
    """Time of eight ranks / of eight runs for a step: median over pairs in alternating order."""
    seconds = alternate({
        "eight ranks": lambda pair: seconds_of([launched(binary, RANKS, f"{folder}/ranks-{pair}", 1)]),
        "eight runs": lambda pair: seconds_of([run(binary, f"{folder}/run-{pair}-{rank}", 1) for rank in range(RANKS)]),
    }, pairs, lambda text: print(text, flush=True))
    return statistics.median(ours / theirs for ours, theirs in zip(*seconds.values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=600)
    arguments = parser.parse_args()
    binary = str(Path(arguments.binary).resolve())
    with tempfile.TemporaryDirectory(prefix="gputrain-ranks-") as folder:
        cost = side_by_side(arguments.pairs, binary, arguments.steps, f"{folder}/one")
        start = in_turn(arguments.pairs, binary, f"{folder}/eight")
    print(f"CPU time of a launched rank / of a run      {cost:.3f}   goal <= 1.02")
    print(f"start of {RANKS} ranks / of {RANKS} runs                {start:.3f}   goal <= 1.3")


main()
