"""Compares saving and loading a checkpoint with torch.save, the safetensors package and the disk's sequential rate.
All are measured in turns on the same disk. A save ends when it is durable: theirs includes fsync, gputrain's is the
ledger's value (hash, sync, rename; reading back is reported separately). A load reads files that are not in the page
cache and ends when the live tensors are filled; gputrain's includes the hash check.

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

STEPS, INTERVAL = 24, 8  # a save is written and read back before the next one begins
OURS, TORCH, SAFETENSORS, DISK = "gputrain", "torch", "safetensors", "disk"


def job(width: int) -> str:
    return "\n".join([
        "schema: 1",
        "name: save",
        f"model: {{type: mlp, config: {{hidden: [{width}, {width}]}}}}",
        "data: {train: {format: synthetic, samples: 6400, num_classes: 4}, image: {size: 4}}",
        f"train: {{max_steps: {STEPS}, global_batch_size: 64}}",
        "optimizer: {type: adamw, lr: 1e-4}",
        f"checkpoint: {{interval: {INTERVAL}, keep_last: 1}}",
        "log: {interval: 1}",
    ])


def forget(folder: Path) -> None:
    """Drops these files from the page cache."""
    for path in folder.rglob("*") if folder.is_dir() else [folder]:
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def attempt(binary: str, folder: Path, width: int) -> list:
    (folder / "job.yaml").write_text(job(width))
    subprocess.run([binary, "run", folder / "job.yaml", "--output-dir", folder / "run"], check=True,
                   stdout=subprocess.DEVNULL, env=os.environ | {"GPUTRAIN_METADATA_URL": "aws=http://127.0.0.1:9"})
    return [json.loads(line) for line in (folder / "run/ledger.jsonl").read_text().splitlines()]


def run_ours(binary: str, folder: Path, width: int) -> dict:
    saves = [line for line in attempt(binary, folder, width) if line["kind"] == "checkpoint"]
    background, last = saves[:STEPS // INTERVAL], saves[-1]  # training waits for the last one, as with torch.save
    forget(folder / "run/ckpt")
    resumed = [line for line in attempt(binary, folder, width) if line["kind"] == "attempt"][-1]
    shutil.rmtree(folder / "run")
    return {"bytes": saves[0]["bytes"],
            "save": last["seconds"],
            "verify": last["verify_seconds"],
            "save_beside_training": statistics.median(save["seconds"] for save in background),
            "stall": statistics.median(save["stall_seconds"] for save in background),
            "first_stall": background[0]["stall_seconds"],
            "load": resumed["restore_seconds"]}


def timed(action) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def write_durably(write, path: Path) -> None:
    write(path)
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def fill(live: dict, saved: dict) -> None:
    for name, tensor in saved.items():
        live[name].copy_(tensor)


def write_plainly(path: Path, size: int, block: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        for _ in range(size // len(block)):
            file.write(block)


def read_plainly(path: Path) -> None:
    block = bytearray(1 << 24)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(block):
            pass


def run_theirs(folder: Path, state: dict, live: dict) -> dict:
    size = sum(tensor.nbytes for tensor in state.values())
    block = os.urandom(1 << 24)
    ways = {
        TORCH: (lambda path: torch.save(state, path), lambda path: fill(live, torch.load(path))),
        SAFETENSORS: (lambda path: safetensors.torch.save_file(state, path),
                      lambda path: fill(live, safetensors.torch.load_file(path))),
        DISK: (lambda path: write_plainly(path, size, block), read_plainly),
    }
    seconds = {}
    for name, (write, read) in ways.items():
        path = folder / name
        save = timed(lambda: write_durably(write, path))
        forget(path)
        seconds[name] = {"save": save, "load": timed(lambda: read(path))}
        path.unlink()
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=1.5)
    parser.add_argument("--folder", help="on the disk to measure; default: the temporary folder")
    arguments = parser.parse_args()
    width = int((arguments.gigabytes * 1e9 / 12) ** 0.5)  # 4 bytes each for weights and two moments
    state = {f"{kind}.{layer}": torch.randn(width, width // 4) for kind in ("model", "m", "v") for layer in range(4)}
    live = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    size = sum(tensor.nbytes for tensor in state.values())
    rates = {name: {"save": [], "load": []} for name in (OURS, TORCH, SAFETENSORS, DISK)}
    ours = []
    with tempfile.TemporaryDirectory(prefix="gputrain-save-", dir=arguments.folder) as name:
        for number in range(arguments.rounds):
            ours.append(run_ours(arguments.binary, Path(name), width))
            for kind in ("save", "load"):
                rates[OURS][kind].append(ours[-1]["bytes"] / ours[-1][kind])
            for way, seconds in run_theirs(Path(name), state, live).items():
                for kind in ("save", "load"):
                    rates[way][kind].append(size / seconds[kind])
            for kind in ("save", "load"):
                print(f"round {number + 1}/{arguments.rounds} {kind}: " + "  ".join(
                    f"{way} {measured[kind][-1] / 1e6:,.0f} MB/s" for way, measured in rates.items()), flush=True)
    for kind in ("save", "load"):
        for other in (TORCH, SAFETENSORS, DISK):
            ratio = statistics.median(a / b for a, b in zip(rates[OURS][kind], rates[other][kind]))
            print(f"{kind}: gputrain / {other:12} {ratio:.2f}")
    for what in ("save", "verify", "save_beside_training", "stall", "first_stall"):
        print(f"{what + ' seconds':20} {statistics.median(one[what] for one in ours):.3f}")
    print(f"stall / save         {statistics.median(one['stall'] / one['save'] for one in ours):.3f}")


main()
