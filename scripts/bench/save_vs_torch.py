"""Compares saving a checkpoint with torch.save and with the safetensors package, each followed by fsync, and with the
disk's own sequential rate, all measured in turns on the same disk. gputrain's numbers are those of its ledger: what a
save took in the background, hashing and reading back included, and for how long training stood still.

usage: save_vs_torch.py --binary build/release/bin/gputrain [--rounds N] [--gigabytes G] [--folder DIR]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import safetensors.torch
import torch

SAVES = 3


def job(width: int) -> str:
    return "\n".join([
        "schema: 1",
        "name: save",
        f"model: {{type: mlp, config: {{hidden: [{width}, {width}]}}}}",
        "data: {train: {format: synthetic, samples: 64, num_classes: 4}, image: {size: 4}}",
        f"train: {{max_steps: {SAVES}, global_batch_size: 1}}",
        "optimizer: {type: adamw, lr: 1e-4}",
        "checkpoint: {interval: 1, keep_last: 1}",
        "log: {interval: 1}",
    ])


def run_ours(binary: str, folder: Path, width: int) -> dict:
    (folder / "job.yaml").write_text(job(width))
    subprocess.run([binary, "run", folder / "job.yaml", "--output-dir", folder / "run"], check=True,
                   stdout=subprocess.DEVNULL, env=os.environ | {"GPUTRAIN_METADATA_URL": "aws=http://127.0.0.1:9"})
    lines = [json.loads(line) for line in (folder / "run/ledger.jsonl").read_text().splitlines()]
    saves = [line for line in lines if line["kind"] == "checkpoint"]
    background = saves[1:SAVES]  # the first one allocates the memory of the copy, the last one is not in the background
    shutil.rmtree(folder / "run")
    # What a save stalls for once the one before it is done: the copy. Saving every step also waits for that one.
    return {"bytes": saves[0]["bytes"], "seconds": statistics.median(save["seconds"] for save in background),
            "first_stall_seconds": saves[0]["stall_seconds"]}


def timed(write, path: Path) -> float:
    begin = time.perf_counter()
    write(path)
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
    seconds = time.perf_counter() - begin
    path.unlink()
    return seconds


def write_plainly(size: int):
    block = os.urandom(1 << 24)

    def write(path: Path):
        with open(path, "wb", buffering=0) as file:
            for _ in range(size // len(block)):
                file.write(block)
    return write


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=1.5)
    parser.add_argument("--folder", help="on the disk to measure; default: the temporary folder")
    arguments = parser.parse_args()
    width = int((arguments.gigabytes * 1e9 / 12) ** 0.5)  # weights and two moments, 4 bytes each
    state = {f"{kind}.{layer}": torch.randn(width, width // 4) for kind in ("model", "m", "v") for layer in range(4)}
    size = sum(tensor.nbytes for tensor in state.values())
    results = {"gputrain": [], "torch.save": [], "safetensors": [], "disk": []}
    stalls = []
    with tempfile.TemporaryDirectory(prefix="gputrain-save-", dir=arguments.folder) as name:
        folder = Path(name)
        for number in range(arguments.rounds):
            ours = run_ours(arguments.binary, folder, width)
            stalls.append(ours["first_stall_seconds"])
            results["gputrain"].append(ours["bytes"] / ours["seconds"])
            results["torch.save"].append(size / timed(lambda path: torch.save(state, path), folder / "state.pt"))
            results["safetensors"].append(
                size / timed(lambda path: safetensors.torch.save_file(state, path), folder / "state.safetensors"))
            results["disk"].append(size / timed(write_plainly(size), folder / "plain"))
            print(f"round {number + 1}/{arguments.rounds}: " +
                  "  ".join(f"{name} {rates[-1] / 1e6:,.0f} MB/s" for name, rates in results.items()), flush=True)
    ours = statistics.median(results["gputrain"])
    for other in ("torch.save", "safetensors", "disk"):
        ratios = [a / b for a, b in zip(results["gputrain"], results[other])]
        print(f"gputrain / {other:12} {statistics.median(ratios):.2f}")
    print(f"training stood still for {statistics.median(stalls):.2f} s of a save that takes {size / ours:.2f} s")


main()
