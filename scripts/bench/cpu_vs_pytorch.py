"""Compares gputrain with PyTorch on this machine's CPU:
a small character GPT and a CIFAR-sized ResNet-18, with the same model, batch, optimizer and data. Short runs first find
PyTorch's best setting: 0, 1 or 2 loader workers, and the image layout. Then runs pairs in alternating order, each run
after a short run of the same program. Prints medians of the per-pair ratios and writes everything to JSON.

usage: cpu_vs_pytorch.py --binary build/release/bin/gputrain --output bench.json [--pairs N] [--only gpt|resnet] [--compile]
                         [--beside N]
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from measure import alternate, machine, ratios, run_gputrain, run_torch

GPT = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64}
GPT_BATCH, GPT_STEPS, GPT_VOCAB = 12, 240, 65
IMAGE_BATCH, IMAGE_STEPS, IMAGE_SIZE, CLASSES = 32, 20, 32, 10
ADAMW = {"type": "adamw", "lr": 1e-3, "betas": [0.9, 0.99], "weight_decay": 0.1}
SGD = {"type": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}


def write_text(path: Path):
    """A megabyte of words over 65 characters; a few words are likely to follow each word."""
    draw = random.Random(1)
    alphabet = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert len(alphabet) == GPT_VOCAB
    words = ["".join(draw.choices(alphabet[13:], k=draw.randint(2, 8))) for _ in range(400)]
    words += list(alphabet[:13])
    follows = [draw.sample(range(len(words)), 8) for _ in words]
    text, word = [alphabet], 0
    while len(text) < 180_000:
        word = draw.choice(follows[word])
        text.append(words[word] + " ")
    path.write_text("".join(text))


def write_images(folder: Path, per_class: int = 160):
    from PIL import Image

    draw = random.Random(2)
    for label in range(CLASSES):
        (folder / f"class{label}").mkdir(parents=True)
        for number in range(per_class):
            pixels = bytes(min(255, max(0, int(draw.gauss(20 + 22 * label, 40)))) for _ in range(IMAGE_SIZE**2 * 3))
            Image.frombytes("RGB", (IMAGE_SIZE, IMAGE_SIZE), pixels).save(folder / f"class{label}/{number:04}.png")


def flow(value) -> str:
    """JSON is valid YAML."""
    return json.dumps(value)


def gpt_job(data: Path, steps: int = GPT_STEPS) -> str:
    return "\n".join([
        "schema: 1",
        "name: bench-gpt",
        f"model: {flow({'type': 'gpt', 'config': GPT})}",
        f"data: {flow({'train': {'path': str(data), 'format': 'text'}})}",
        f"train: {flow({'max_steps': steps, 'global_batch_size': GPT_BATCH, 'max_grad_norm': 1.0})}",
        f"optimizer: {flow(ADAMW)}",
        "lr_scheduler: {type: constant}",
        "checkpoint: {interval: null}",
        "log: {interval: 10}",
    ])


def resnet_job(data: Path, steps: int = IMAGE_STEPS) -> str:
    image = {"size": IMAGE_SIZE, "augment": {"random_crop_padding": 4, "hflip": 0.5}}
    return "\n".join([
        "schema: 1",
        "name: bench-resnet18",
        f"model: {flow({'type': 'resnet18', 'config': {'num_classes': CLASSES, 'stem': 'cifar'}})}",
        f"data: {flow({'train': {'path': str(data), 'format': 'imagefolder'}, 'image': image})}",
        f"train: {flow({'max_steps': steps, 'global_batch_size': IMAGE_BATCH})}",
        f"optimizer: {flow(SGD)}",
        "lr_scheduler: {type: constant}",
        "checkpoint: {interval: null}",
        "log: {interval: 1}",
    ])


def gpt_twin(data: Path) -> dict:
    return {"device": "cpu", "precision": "fp32", "compile": False, "channels_last": False, "workers": 0,
            "model": {"kind": "gpt", **GPT, "vocab_size": GPT_VOCAB},
            "data": {"kind": "text", "path": str(data), "length": GPT["block_size"]},
            "batch": GPT_BATCH, "steps": GPT_STEPS, "log_interval": 10, "optimizer": ADAMW, "max_grad_norm": 1.0}


def resnet_twin(data: Path) -> dict:
    return {"device": "cpu", "precision": "fp32", "compile": False, "channels_last": False, "workers": 0,
            "model": {"kind": "resnet", "depth": 18, "num_classes": CLASSES, "cifar_stem": True},
            "data": {"kind": "images", "path": str(data), "size": IMAGE_SIZE},
            "batch": IMAGE_BATCH, "steps": IMAGE_STEPS, "log_interval": 1, "optimizer": SGD, "max_grad_norm": None}


def best_twin(spec: dict, units: int, arguments, folder: Path, say) -> dict:
    """The spec with the fastest number of workers and, for images, the fastest layout."""
    tries = [{"workers": workers, "channels_last": layout}
             for layout in ([False, True] if spec["model"]["kind"] == "resnet" else [False]) for workers in (0, 1, 2)]
    rates = []
    for number, choice in enumerate(tries):
        short = spec | choice | {"steps": max(12, spec["steps"] // 2)}
        rate = run_torch(sys.executable, short, units, arguments.environment, folder / f"choose{number}").rate
        rates.append(rate)
        say(f"PyTorch with {choice['workers']} workers{', channels_last' if choice['channels_last'] else ''}: {rate:,.1f}")
    return spec | tries[rates.index(max(rates))]


def compare(name: str, unit: str, job, twin: dict, units: int, arguments, folder: Path) -> dict:
    """`job` makes YAML text for a number of steps. Before each measured run, a short run of the same program leaves
    memory and caches in the state that this program leaves, not the other one."""
    say = lambda text: print(f"{name:7} {text}", flush=True)
    twin = best_twin(twin, units, arguments, folder, say)

    def after_its_like(run):
        def measured(turn: int):
            run(4 * twin["log_interval"], f"before{turn}")
            return run(twin["steps"], f"measured{turn}")
        return measured

    def pytorch(compiled: bool):
        return after_its_like(lambda steps, turn: run_torch(
            sys.executable, twin | {"steps": steps, "compile": compiled}, units, arguments.environment,
            folder / f"{'compiled' if compiled else 'eager'}-{turn}"))

    results = alternate({
        "gputrain": after_its_like(lambda steps, turn: run_gputrain(
            arguments.binary, job(steps), units, arguments.environment, folder / f"ours-{turn}")),
        "eager": pytorch(False),
    } | ({"compile": pytorch(True)} if arguments.compile else {}), arguments.pairs, say)
    return {"workload": name, "unit": unit, "pytorch_workers": twin["workers"], "pytorch_channels_last": twin["channels_last"],
            "ratios": {other: ratios(results["gputrain"], runs) for other, runs in results.items() if other != "gputrain"},
            "runs": {who: [run.as_dict() for run in runs] for who, runs in results.items()}}


@contextmanager
def others(number: int):
    """Processes in sessions of their own, like another user's, that compute until the end."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) for _ in range(number)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def print_table(report: dict):
    goals = {"throughput": ">= 1.0", "start to first step": "<= 0.33", "memory before first step": "<= 0.75",
             "peak memory": "<= 1.0"}
    print(f"\n{report['machine']['cpu']}, {report['machine']['cores']} cores, torch {report['machine']['torch']} on both sides"
          f" (the wheel of the package index), {report['machine']['revision']}"
          + (f"; busy processes beside: {report['beside']}" if report["beside"] else ""))
    columns = {f"{entry['workload']}, {other}": found for entry in report["results"] for other, found in entry["ratios"].items()}
    print(f"{'gputrain / PyTorch, median of pairs':38}" + "".join(f"{title:>18}" for title in columns) + "   goal")
    for name, goal in goals.items():
        print(f"  {name:36}" + "".join(f"{found[name]:18.3f}" for found in columns.values()) + f"   {goal}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--only", choices=["gpt", "resnet"])
    parser.add_argument("--compile", action="store_true", help="against torch.compile, too")
    parser.add_argument("--beside", type=int, default=0, help="so many other processes, each of which wants a core")
    arguments = parser.parse_args()
    report = {"machine": machine() | {"cores": len(os.sched_getaffinity(0))}, "beside": arguments.beside, "results": []}
    arguments.environment = {"OMP_NUM_THREADS": str(report["machine"]["cores"])}
    with others(arguments.beside), tempfile.TemporaryDirectory(prefix="gputrain-bench-") as folder:
        data = Path(folder)
        write_text(data / "text.txt")
        write_images(data / "images")
        workloads = {
            "gpt": ("tokens/s", partial(gpt_job, data / "text.txt"), gpt_twin(data / "text.txt"), GPT_BATCH * GPT["block_size"]),
            "resnet": ("images/s", partial(resnet_job, data / "images"), resnet_twin(data / "images"), IMAGE_BATCH),
        }
        for name, (unit, job, twin, units) in workloads.items():
            if arguments.beside:  # PyTorch may take ten times as long then
                twin["steps"] //= 4
            if arguments.only in (None, name):
                report["results"].append(compare(name, unit, job, twin, units, arguments, data / name))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=2))
    print_table(report)
    print(f"all numbers: {arguments.output}")


if __name__ == "__main__":
    main()
