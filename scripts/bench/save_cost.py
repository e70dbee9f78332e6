"""Measures how much checkpoints slow down training:
the quickstart's small GPT with a checkpoint every 50 steps and with none before the end, in alternating pairs, from
step 50 to the last step.

usage: save_cost.py --binary build/release/bin/gputrain [--pairs N] [--steps N] [--every N]
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def seconds_of(binary: str, steps: int, every: int) -> float:
    """Seconds from step 50 to the last; `every`: steps between checkpoints."""
    with tempfile.TemporaryDirectory(prefix="gputrain-save-") as folder:
        settings = [f"train.max_steps={steps}", f"checkpoint.interval={every}", f"eval.interval={steps}", "log.interval=50",
                    "eval.sample=null"]
        command = [binary, "run", str(ROOT / "configs/quickstart.yaml"), "--output-dir", f"{folder}/run"]
        for setting in settings:
            command += ["--set", setting]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT,
                       env=os.environ | {"GPUTRAIN_METADATA_URL": "aws=http://127.0.0.1:9"})
        lines = [json.loads(line) for line in Path(f"{folder}/run/metrics.jsonl").read_text().splitlines()]
        times = {line["step"]: line["time"] for line in lines if line["kind"] == "train"}
        return times[steps] - times[50]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=50)
    arguments = parser.parse_args()
    ratios = []
    for pair in range(arguments.pairs):
        order = [arguments.every, arguments.steps]
        if pair % 2 == 1:
            order.reverse()
        seconds = {every: seconds_of(arguments.binary, arguments.steps, every) for every in order}
        ratios.append(seconds[arguments.every] / seconds[arguments.steps])
        print(f"pair {pair + 1}/{arguments.pairs}: saving {seconds[arguments.every]:.2f} s, not saving "
              f"{seconds[arguments.steps]:.2f} s, ratio {ratios[-1]:.3f}", flush=True)
    print(f"saving every {arguments.every} steps takes {statistics.median(ratios):.3f} of the time without")


main()
