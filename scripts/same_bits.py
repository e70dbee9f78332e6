#!/usr/bin/env python3
"""Compares two builds of gputrain bit for bit: the metrics and the trained weights of six short jobs, and a run that the
old build begins and the new one resumes. For changes that must not change results.

usage: scripts/same_bits.py OLD NEW [--data FOLDER] [--keep FOLDER]
  OLD, NEW  the programs, such as ../before/build/release/bin/gputrain and build/release/bin/gputrain
  --data    a folder with mnist/ and cifar10-jpg.tar; without it, made-up images take their place
  --keep    keep the run folders here

Prints a line for each job; exits 1 if one differs.
"""

import argparse
import filecmp
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MADE_UP = "{format: synthetic, samples: 512}"
QUICKSTART = ["configs/quickstart.yaml", "data.train.include=[LICENSE]", "data.val.include=[LICENSE]",
              "lr_scheduler.warmup=5", "eval.interval=10", "log.interval=5"]
GPT = QUICKSTART + ["model.config.n_layer=2", "model.config.n_embd=64", "train.max_steps=12"]
TWO_RANKS = ["launch", "--nproc-per-node", "2"]


def depends_on_clock(key):
    return key.startswith("time") or key.endswith("_per_second")


def jobs(data: Path | None) -> dict[str, list[list[str]]]:
    """Each job is a list of commands that run one after another in the same run folder."""
    mnist = ["configs/mnist_cnn.yaml", "vars.data=" + str(data / "mnist")] if data else [
        "configs/mnist_cnn.yaml", f"data.train={MADE_UP}", f"data.val={MADE_UP}", "data.image={size: 28, channels: 1}"]
    cifar = ["configs/cifar10_tiny.yaml", "vars.data=" + str(data / "cifar10-jpg.tar"), "data.val={path: null, prefix: null, split: 1%}"] if data else [
        "configs/cifar10_tiny.yaml", "data.train.prefix=null", "data.val.prefix=null", f"data.train={MADE_UP}",
        f"data.val={MADE_UP}", "data.image.size=32"]
    short = ["train.max_epochs=null", "lr_scheduler.warmup=5", "eval.interval=20", "log.interval=5", "checkpoint.interval=20"]
    zero2 = GPT + ["parallel.shard=gradients", "checkpoint.interval=4"]
    return {
        "quickstart": [["run", *QUICKSTART, "train.max_steps=20"]],
        "MNIST": [["run", *mnist, *short, "train.max_steps=40"]],
        "CIFAR tiny": [["run", *cifar, *short, "train.max_steps=12"]],
        "GPT, dropout, accumulation": [["run", *GPT, "model.config.dropout=0.1", "train.gradient_accumulation_steps=4"]],
        "two ranks": [[*TWO_RANKS, "run", *GPT]],
        "ZeRO 2, resumed": [[*TWO_RANKS, "run", *zero2, "train.max_steps=6"],
                            [*TWO_RANKS, "run", *zero2, "train.max_steps=14", "--accept"]],
    }


def run(program: str, command: list[str], folder: Path) -> None:
    words, after_run = [], False
    for word in command:
        if after_run and "=" in word:
            words += ["--set", word]
        else:
            words.append(word)
        after_run = after_run or word == "run"
    words += ["--output-dir", str(folder), "--set", "device=cpu", "--set", "expect=null"]
    done = subprocess.run([program, *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(words)}\nended with exit code {done.returncode}:\n{done.stdout}{done.stderr}")


def curve(folder: Path) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not depends_on_clock(k)} for line in lines]


def differences(old: Path, new: Path) -> list[str]:
    found = []
    before, after = curve(old), curve(new)
    if before != after:
        first = next((i for i, (a, b) in enumerate(zip(before, after)) if a != b), min(len(before), len(after)))
        found.append(f"metrics.jsonl line {first + 1}: {before[first:first + 1]} and {after[first:first + 1]}")
    if not filecmp.cmp(old / "model.safetensors", new / "model.safetensors", shallow=False):
        found.append("model.safetensors")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    old, new = (str(Path(program).resolve()) for program in (options.old, options.new))
    folder = options.keep or Path(tempfile.mkdtemp(prefix="same_bits_"))
    data = options.data.resolve() if options.data else None
    differing = 0

    def report(name: str, before: Path, after: Path) -> None:
        nonlocal differing
        found = differences(before, after)
        differing += bool(found)
        print(f"{name:<28} " + ("differs: " + "; ".join(found) if found else "the same bits"), flush=True)

    try:
        for number, (name, commands) in enumerate(jobs(data).items()):
            sides = {side: folder / f"{number}-{side}" for side in ("old", "new")}
            for command in commands:
                run(old, command, sides["old"])
                run(new, command, sides["new"])
            report(name, sides["old"], sides["new"])
        first, second = jobs(data)["ZeRO 2, resumed"]
        run(old, first, folder / "begun")
        shutil.copytree(folder / "begun", folder / "resumed")
        run(old, second, folder / "begun")
        run(new, second, folder / "resumed")
        report("begun by old, resumed by new", folder / "begun", folder / "resumed")
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
