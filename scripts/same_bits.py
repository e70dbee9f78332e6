#!/usr/bin/env python3
"""Compares two builds of gputrain bit for bit: the metrics and the trained weights of short jobs, one for each task and
way to share a model, and a run that the old build begins and the new one resumes. For changes that must not change results.

usage: scripts/same_bits.py OLD NEW [--data FOLDER] [--keep FOLDER]
  OLD, NEW  the programs, such as ../before/build/release/bin/gputrain and build/release/bin/gputrain
  --data    a folder with mnist/ and cifar10-jpg.tar; without it, made-up images take their place
  --keep    keep the run folders here

Prints a line for each job; exits 1 if one differs.
"""

import argparse
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
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
        "ZeRO 3": [[*TWO_RANKS, "run", *GPT, "parallel.shard=parameters"]],
        "pipeline": [[*TWO_RANKS, "run", *GPT, "parallel.pipeline=2", "eval.sample=null"]],
        "ZeRO 2, resumed": [[*TWO_RANKS, "run", *zero2, "train.max_steps=6"],
                            [*TWO_RANKS, "run", *zero2, "train.max_steps=14", "--accept"]],
    }


WORDS = "red green blue old new small big far".split()


def record(number: int) -> dict:
    """A record that has the columns of every task of texts."""
    one, two = WORDS[number % 8], WORDS[number // 8 % 8]
    text = f"{one} house {two}"
    return {"text": text, "label": one < "h", "labels": [w for w in (one, two) if w < "h"], "score": number % 8 / 7,
            "tokens": text.split(), "tags": ["B-X" if one < "h" else "O", "O", "O"], "positive": f"it is {one}",
            "prompt": text, "chosen": " good", "rejected": " bad", "completion": " good"}


def png(pixels: bytes, size: int, channels: int) -> bytes:
    rows = b"".join(b"\0" + pixels[at:at + size * channels] for at in range(0, len(pixels), size * channels))
    parts = [(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2 if channels == 3 else 0, 0, 0, 0)),
             (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts)


def write_data(folder: Path) -> None:
    records = [record(i) for i in range(64)]
    (folder / "records.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    pairs = [{"anchor": one["text"], "positive": one["positive"]} for one in records]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in pairs))
    for i in range(16):
        for kind, content in (("images", png(bytes([i * 16]) * 768, 16, 3)), ("masks", png(bytes([i % 2, 1] * 128), 16, 1))):
            (folder / "masks" / kind).mkdir(parents=True, exist_ok=True)
            (folder / "masks" / kind / f"{i}.png").write_bytes(content)


def jobs_of_tasks(folder: Path) -> dict[str, list[list[str]]]:
    """Jobs on the data of write_data(). LoRA and preferences go on from the language model that the old build trains."""
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 48, "dropout": 0}
    gpt, base = {"type": "gpt", "config": sizes}, {"type": "gpt", "pretrained": str(folder / "base/model.safetensors"), "config": sizes}

    def job(name: str, model: dict, columns: dict | None = None, task: str | None = None, tokenizer: str = "words") -> list[list[str]]:
        data = {"train": {"format": "jsonl", "path": str(folder / ("pairs.jsonl" if name == "vectors" else "records.jsonl"))}, "val": {"split": "25%"},
                "text": {"tokenizer": tokenizer, "max_length": 40, "columns": columns or {}}}
        if name == "masks":
            masks = {"format": "segmentation", "path": str(folder / "masks"), "num_classes": 2}
            data = {"train": masks, "val": masks, "image": {"size": 16}}
        file = folder / f"{name}.json"
        file.write_text(json.dumps({"model": model, "data": data, "train": {"max_steps": 6, "global_batch_size": 8}, "eval": {"interval": 3},
                                    "optimizer": {"type": "adamw", "lr": 0.01}, "task": {"type": task} if task else {}}))
        return [["run", str(file)]]

    def bert(head: str) -> dict:
        return {"type": "bert", "config": {**sizes, "head": head}}

    return {"base": job("base", gpt, tokenizer="bytes"),
            "LoRA": job("LoRA", {**base, "adapter": {"type": "lora", "rank": 2}}, tokenizer="bytes"),
            **{task: job(task, base, task=task, tokenizer="bytes") for task in ("dpo", "kto", "orpo")},
            "reward": job("reward", {**gpt, "config": {**sizes, "head": "classifier"}}, task="reward", tokenizer="bytes"),
            "masked words": job("masked words", bert("mlm")),
            "classes": job("classes", bert("classifier"), task="text_classification"),
            "several classes": job("several classes", bert("classifier"), {"label": "labels"}, "multi_label_classification"),
            "numbers": job("numbers", bert("classifier"), {"label": "score"}, "regression"),
            "tags": job("tags", bert("tagger"), task="tagging"),
            "vectors": job("vectors", bert("embedder"), task="retrieval"),
            "masks": job("masks", {"type": "unet", "config": {"channels": [8, 16]}})}


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
    for name in ("model.safetensors", "adapter/adapter_model.safetensors"):
        if (old / name).exists() and tensors(old / name) != tensors(new / name):
            found.append(name)
    return found


def tensors(file: Path) -> tuple[dict, bytes]:
    """What a safetensors file holds but its metadata."""
    content = file.read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    return {name: told for name, told in json.loads(content[8:end]).items() if name != "__metadata__"}, content[end:]


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
        made = folder / "made"
        made.mkdir(parents=True)
        write_data(made)
        of_tasks = jobs_of_tasks(made)
        run(old, of_tasks["base"][0], made / "base")
        for number, (name, commands) in enumerate({**jobs(data), **of_tasks}.items()):
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
