#!/usr/bin/env python3
"""Writes into the head of jobs in configs/ what a step of them needs on one GPU, by `gputrain plan`; `gputrain init --list` shows it.

    scripts/recipe_memory.py [--program build/release/bin/gputrain] [--check] [--only NAME]

The micro-batch is the job's, or 1 if it is searched for. Only sizes are needed, no data, no weights and no GPU. Jobs whose data
cannot be made up, and those that are made for a CPU, have no such line. --check compares and writes nothing.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from memory_table import MODELS  # noqa: E402

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
BEGIN = "# A step needs "
IMAGES = {"format": "synthetic", "samples": 1000}
# The published model, and the keys that a job gets beside made-up tokens or images.
RECIPES = {
    "finetune_lora": ("Qwen3-8B", {}),
    "finetune_qlora": ("Qwen3-8B", {}),
    "finetune_full": ("Qwen3-1.7B", {}),
    "gpt2_124m": (None, {"data.train": {**IMAGES, "vocab_size": 50257}, "train.global_batch_tokens": None,
                         "train.global_batch_size": 64}),
    "pretrain_text": (None, {"data.train": {**IMAGES, "vocab_size": 151669}}),
    "shakespeare_char": (None, {"data.train": {**IMAGES, "vocab_size": 65}}),
    "cifar10_resnet18": (None, {"data.train": {**IMAGES, "num_classes": 10}, "data.train.prefix": None, "data.image.size": 32}),
    "resnet50_imagenet": (None, {"data.train": {**IMAGES, "num_classes": 1000}}),
}


def said(job, key):
    """The value of a key of the job; nothing if it is not given."""
    found = re.search(rf"\b{key}: (\w+)", job.read_text())
    return found and found[1]


def line_of(program, name):
    model, settings = RECIPES[name]
    job = CONFIGS / f"{name}.yaml"
    with tempfile.TemporaryDirectory() as folder:
        settings = {**settings, "data.val": None, "eval.sample": None}
        if model:
            (Path(folder) / "config.json").write_text(json.dumps(MODELS[model]))
            settings |= {"data.train": {**IMAGES, "vocab_size": MODELS[model]["vocab_size"]}, "data.text": None,
                         "model.pretrained": folder, "train.global_batch_size": 1}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        ended = subprocess.run([program, "plan", job, *words, "--device-memory", "100TB", "--gpus", "h100", "--json"],
                               capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(ended.stderr)
    micro = said(job, "micro_batch_size") or said(job, "global_batch_size")
    wanted = {"micro_batch": 1 if micro == "auto" else int(micro),
              "activation_checkpointing": said(job, "activation_checkpointing") or "none"}
    needed = next(one["memory"]["total"] for one in json.loads(ended.stdout)["candidates"] if wanted.items() <= one.items())
    return f"{BEGIN}{needed / 1e9:.1f} GB{' with ' + model if model else ''}.\n"


def with_line(text, line):
    """The job with the line at the end of its head."""
    lines = [one for one in text.splitlines(keepends=True) if not one.startswith(BEGIN)]
    end = next(i for i, one in enumerate(lines) if not one.startswith("#"))
    return "".join([*lines[:end], line, *lines[end:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=Path(__file__).parents[1] / "build/release/bin/gputrain")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", choices=RECIPES)
    options = parser.parse_args()
    wrong = False
    for name in [options.only] if options.only else RECIPES:
        path = CONFIGS / f"{name}.yaml"
        text, line = path.read_text(), line_of(options.program, name)
        if options.check and line not in text:
            wrong = True
            print(f"{path}: it should say: {line}", end="")
        if not options.check:
            path.write_text(with_line(text, line))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
