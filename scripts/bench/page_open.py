"""Measures how fast a page of a long run is: `gputrain compare --html` on metrics.jsonl with made-up curves, then in a headless
Chromium the time from opening the page until its first charts are drawn, and the time from frame to frame while it is zoomed, a
little with each; a screen shows one every 16.7 ms.

usage: page_open.py --binary build/release/bin/gputrain [--steps N] [--metrics N] [--rounds N]
"""

import argparse
import json
import math
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
import browser  # noqa: E402

JOB = """
schema: 1
device: cpu
model: {type: mlp}
data: {train: {format: synthetic, samples: 60}, image: {size: 8}}
train: {max_steps: 1, global_batch_size: 10}
"""
ZOOM = """(async () => {
  const view = document.querySelector(".plot").chart.view, times = [];
  const frame = () => new Promise(done => requestAnimationFrame(done));
  let begin = await frame();
  for (let i = 0; i < 60; ++i) {
    view.change({ range: [LAST * i / 120, LAST * (1 - i / 120)] });
    const end = await frame();
    times.push(end - begin);
    begin = end;
  }
  return times;
})()"""


def write_curves(file: Path, steps: int, metrics: int):
    draw = random.Random(1)
    with open(file, "w") as out:
        for step in range(1, steps + 1):
            line = {"time": step, "step": step, "epoch": 0, "kind": "train"}
            level = 2 * math.exp(-step / steps * 5)
            line |= {f"train/metric_{i}": level + draw.random() for i in range(metrics)}
            out.write(json.dumps(line) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--metrics", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gputrain-page-") as folder:
        run, page = Path(folder) / "run", Path(folder) / "page.html"
        (Path(folder) / "job.yaml").write_text(JOB)
        subprocess.run([arguments.binary, "run", f"{folder}/job.yaml", "--output-dir", run], check=True, stdout=subprocess.DEVNULL)
        shutil.copytree(run, Path(folder) / "other")
        write_curves(run / "metrics.jsonl", arguments.steps, arguments.metrics)
        begin = time.monotonic()
        subprocess.run([arguments.binary, "compare", run, f"{folder}/other", "--html", page], check=True, stdout=subprocess.DEVNULL)
        print(f"written in {time.monotonic() - begin:.1f} s, {page.stat().st_size / 2**20:.0f} MiB")
        with browser.Browser() as one:
            one.look(1280)
            opened = []
            for _ in range(arguments.rounds):
                one.open(page)
                opened.append(one.run("performance.now()") / 1000)
            frames = one.run(ZOOM.replace("LAST", str(arguments.steps)))
        print(f"opened in {statistics.median(opened):.2f} s (median of {arguments.rounds}, {min(opened):.2f} to {max(opened):.2f}); "
              f"while zooming, a frame follows after {statistics.median(frames):.1f} ms, at most {max(frames):.0f}; "
              f"{sum(one > 17 for one in frames)} of {len(frames)} after more than one of the screen")


main()
