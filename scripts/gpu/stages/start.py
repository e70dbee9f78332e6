"""Starts a job of compare.py with gputrain for the first time on this kind of GPU: says how long the first step takes,
and fills the caches of chosen kernels and plans, so that later runs are timed without that.

usage: start.py WORKLOAD GPUTRAIN SECONDS
  SECONDS  ends there; what was chosen until then is kept
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from training import say_result, train, write_job

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from compare import WORKLOADS  # noqa: E402

STEPS = 6  # a step is one CUDA graph from the fourth on


def choices() -> list[dict]:
    path = Path(os.environ.get("GPUTRAIN_KERNEL_CHOICES", "/none"))
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> int:
    name, binary, seconds = sys.argv[1:]
    work = WORKLOADS[name]["job"]
    job = work | {"train": work["train"] | {"max_steps": STEPS}, "checkpoint": {"interval": None},
                  "log": {"interval": 1}}
    before = len(choices())
    with tempfile.TemporaryDirectory(prefix="gputrain-start-") as folder:
        run = train(binary, write_job(Path(folder) / "job", job), Path(folder) / "run", limit=float(seconds))
    made = choices()[before:]
    if run.code == -signal.SIGKILL and run.seconds >= float(seconds):
        say_result(f"{len(run.losses)} steps in {seconds} s, {len(made)} kernels chosen")
        return 75
    if run.trouble:
        say_result(f"failed after {run.seconds:.0f} s", [run.trouble])
        return 1
    first, of_aten = run.summary["first_step_seconds"], sum(choice.get("own") is False for choice in made)
    says = f"first step after {first:.1f} s, {len(made)} kernels chosen, {of_aten} of them ATen's"
    say_result(f"{says}; loss {run.losses[0]:.4f} to {run.losses[-1]:.4f}", first_step_seconds=first, chosen=len(made))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
