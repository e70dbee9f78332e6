"""Compares gputrain with PyTorch, eager and compiled, on one GPU and synthetic data: GPT-2 124M (batch 32, 1,024 tokens,
bf16) and ResNet-50 (batch 256, bf16 and fp16), same shapes and optimizers. PyTorch's batch stays on the GPU. Runs take
turns in the order A B C, C B A; prints medians and writes everything to JSON.

usage: gpu_vs_pytorch.py --output bench.json [--binary gputrain] [--only NAME ...] [--compile] [--rounds N] [--budget S]
Without --binary only PyTorch is measured.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import alternate, ratios, run_gputrain, run_torch

STEPS, LOG_INTERVAL = 60, 5
ADAMW = {"type": "adamw", "lr": 6e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}
SGD = {"type": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}
GPT2 = {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024}


def twin(model: dict, batch: int, precision: str, optimizer: dict, compiled: bool, clip: float | None = None) -> dict:
    images = model["kind"] == "resnet"
    return {"device": "cuda", "precision": precision, "compile": compiled, "channels_last": images, "workers": 0,
            "model": model, "data": {"kind": "synthetic", "size": 224}, "batch": batch, "steps": STEPS,
            "log_interval": LOG_INTERVAL, "optimizer": optimizer, "max_grad_norm": clip}


def job(name: str, model: dict, data: dict, batch: int, precision: str, optimizer: dict, clip: float | None = None) -> str:
    sections = {
        "schema": 1, "name": name, "precision": precision, "model": model, "data": data, "optimizer": optimizer,
        "train": {"max_steps": STEPS, "global_batch_size": batch} | ({"max_grad_norm": clip} if clip else {}),
        "lr_scheduler": {"type": "constant"}, "checkpoint": {"interval": None}, "log": {"interval": LOG_INTERVAL},
    }
    return "\n".join(f"{key}: {json.dumps(value)}" for key, value in sections.items())  # YAML's flow style is JSON


def gpt2() -> dict:
    return {
        "unit": "tokens/s", "units": 32 * 1024,
        "twin": lambda compiled: twin({"kind": "gpt", **GPT2, "vocab_size": 50304}, 32, "bf16", ADAMW, compiled, 1.0),
        "job": job("bench-gpt2", {"type": "gpt", "config": GPT2 | {"vocab_size": 50257, "pad_vocab_to": 50304}},
                   {"train": {"format": "synthetic", "samples": 4096, "vocab_size": 50257}}, 32, "bf16", ADAMW, 1.0),
    }


def resnet50(precision: str) -> dict:
    return {
        "unit": "images/s", "units": 256,
        "twin": lambda compiled: twin({"kind": "resnet", "depth": 50, "num_classes": 1000, "cifar_stem": False}, 256,
                                      precision, SGD, compiled),
        "job": job("bench-resnet50", {"type": "resnet50", "config": {"num_classes": 1000}},
                   {"train": {"format": "synthetic", "samples": 32768, "num_classes": 1000}, "image": {"size": 224}}, 256, precision, SGD),
    }


def bert(vocab_size: int) -> dict:
    return {
        "unit": "sequences/s", "units": 32, "job": None,
        "twin": lambda compiled: twin({"kind": "bert", "vocab_size": vocab_size, "block_size": 512}, 32, "bf16", ADAMW,
                                      compiled),
    }


WORKLOADS = {"gpt2": gpt2(), "resnet50-bf16": resnet50("bf16"), "resnet50-fp16": resnet50("fp16"),
             "bert-30522": bert(30522), "bert-30528": bert(30528)}  # BERT: PyTorch only, to know what is to be beaten


def compare(name: str, arguments, folder: Path, deadline: float) -> dict:
    say = lambda text: print(f"{name:14} {text}", flush=True)
    work = WORKLOADS[name]

    def pytorch(compiled: bool):
        return lambda turn: run_torch(sys.executable, work["twin"](compiled), work["units"], {}, folder / f"{compiled}{turn}")

    contenders = {"eager": pytorch(False)}
    if arguments.compile:
        contenders["compile"] = pytorch(True)
    if arguments.binary and work["job"]:
        contenders["gputrain"] = lambda turn: run_gputrain(arguments.binary, work["job"], work["units"], {},
                                                           folder / f"ours{turn}", on_gpu=True)
    try:
        results = alternate(contenders, arguments.rounds, say, deadline)
    except SystemExit as failure:  # one workload that fails must not cost the others their numbers
        say(f"FAILED: {failure}")
        return {"workload": name, "error": str(failure)}
    ours = results.pop("gputrain", [])
    return {"workload": name, "unit": work["unit"],
            "rates": {key: statistics.median(run.rate for run in runs) for key, runs in ({"gputrain": ours} | results).items() if runs},
            "gputrain_over": {key: ratios(ours, runs) for key, runs in results.items() if ours},
            "runs": {key: [run.as_dict() for run in runs] for key, runs in ({"gputrain": ours} | results).items()}}


def gpu_state() -> str:
    query = "name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu,memory.total"
    return subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv"], capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--binary")
    parser.add_argument("--only", nargs="*", choices=list(WORKLOADS), default=["gpt2", "resnet50-bf16", "resnet50-fp16"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--budget", type=float, default=3600, help="seconds")
    arguments = parser.parse_args()
    deadline = time.time() + arguments.budget
    import torch

    report = {"torch": torch.__version__, "gpu_before": gpu_state(), "results": []}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gputrain-bench-") as folder:
        for name in arguments.only:
            if time.time() > deadline:
                break
            report["results"].append(compare(name, arguments, Path(folder) / name, deadline))
            arguments.output.write_text(json.dumps(report, indent=2))
    report["gpu_after"] = gpu_state()
    arguments.output.write_text(json.dumps(report, indent=2))
    print(report["gpu_before"].splitlines()[-1] if report["gpu_before"] else "no nvidia-smi", "torch", report["torch"])
    for entry in report["results"]:
        rates = "  ".join(f"{key} {rate:,.0f}" for key, rate in entry.get("rates", {}).items())
        over = "  ".join(f"x{value['throughput']:.3f} of {key}" for key, value in entry.get("gputrain_over", {}).items())
        print(f"{entry['workload']:14} {entry.get('unit', 'failed'):12} {rates}  {over}")


if __name__ == "__main__":
    main()
