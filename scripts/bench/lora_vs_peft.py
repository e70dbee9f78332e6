"""Compares LoRA in gputrain with PEFT on this machine's CPU, with the same base model, adapter, batch and optimizer, and
LoRA with training of all weights in gputrain. Runs in turns; prints medians. PEFT runs in a process of its own.

usage: lora_vs_peft.py --binary build/release/bin/gputrain [--rounds N] [--steps N] [--precision bf16|fp32] [--small]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cpu_vs_pytorch import flow, write_text
from measure import Process, median_rate, run_gputrain

SIZES = {"hidden_size": 768, "intermediate_size": 2560, "num_hidden_layers": 12, "num_attention_heads": 12}  # 99 million
SMALL = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 4}
LORA = {"r": 16, "lora_alpha": 32}
BATCH, LENGTH, LR = 4, 128, 1e-4


def write_base(folder: str, sizes: dict, precision: str):
    """In a process of its own: the peak memory of a child begins with what its parent has."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(**sizes, max_position_embeddings=LENGTH, vocab_size=65, tie_word_embeddings=False)
    LlamaForCausalLM(config).to(torch.bfloat16 if precision == "bf16" else torch.float32).save_pretrained(folder)


def job(base: Path, text: Path, steps: int, precision: str, adapter: bool) -> str:
    model = {"type": "gpt", "pretrained": str(base)}
    if adapter:
        model["adapter"] = {"type": "lora", "rank": LORA["r"], "alpha": LORA["lora_alpha"], "target_modules": "all-linear"}
    return "\n".join([
        "schema: 1",
        "name: lora",
        f"precision: {precision}",
        f"model: {flow(model)}",
        f"data: {flow({'train': {'path': str(text), 'format': 'text'}})}",
        f"train: {flow({'max_steps': steps, 'global_batch_size': BATCH, 'micro_batch_size': BATCH})}",
        f"optimizer: {flow({'type': 'adamw', 'lr': LR, 'weight_decay': 0.01})}",
        "lr_scheduler: {type: constant}",
        "checkpoint: {interval: null}",
        "log: {interval: 1}",
    ])


def train_with_peft(base: str, text: str, steps: int, precision: str):
    """Prints the time of each step as JSON."""
    import torch
    import torch.nn.functional as F
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    symbols = Path(text).read_text()
    number = {symbol: place for place, symbol in enumerate(sorted(set(symbols)))}
    tokens = torch.tensor([number[symbol] for symbol in symbols])
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", **LORA))
    rule = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=0.01, fused=True)
    for step in range(1, steps + 1):
        starts = torch.randint(len(tokens) - LENGTH - 1, (BATCH,))
        batch = torch.stack([tokens[start:start + LENGTH + 1] for start in starts])
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = model(batch[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
        rule.zero_grad()
        loss.backward()
        rule.step()
        print(json.dumps({"step": step, "time": time.time(), "loss": loss.item()}), flush=True)


def run_peft(base: Path, text: Path, steps: int, precision: str, environment: dict, folder: Path) -> tuple[float, int]:
    folder.mkdir(parents=True)
    process = Process([sys.executable, __file__, "--peft", str(base), str(text), str(steps), precision], environment,
                      folder / "log")
    points = [(entry["step"], entry["time"]) for entry in map(json.loads, process.lines())]
    return median_rate(points, BATCH * LENGTH), process.finish()


def main():
    if sys.argv[1:2] == ["--peft"]:
        base, text, steps, precision = sys.argv[2:]
        return train_with_peft(base, text, int(steps), precision)
    if sys.argv[1:2] == ["--base"]:
        return write_base(sys.argv[2], json.loads(sys.argv[3]), sys.argv[4])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="fp32")
    parser.add_argument("--small", action="store_true", help="a base of 4 million parameters, to try this script")
    arguments = parser.parse_args()
    environment = {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
    with tempfile.TemporaryDirectory(prefix="gputrain-bench-") as folder:
        root = Path(folder)
        base, text = root / "base", root / "text.txt"
        write_text(text)
        sizes = json.dumps(SMALL if arguments.small else SIZES)
        subprocess.run([sys.executable, __file__, "--base", str(base), sizes, arguments.precision], check=True)

        def ours(adapter: bool):
            def run(place: Path) -> tuple[float, int]:
                found = run_gputrain(arguments.binary, job(base, text, arguments.steps, arguments.precision, adapter),
                                     BATCH * LENGTH, environment, place)
                return found.rate, found.peak_bytes
            return run

        contenders = {"gputrain LoRA": ours(True), "gputrain all weights": ours(False),
                      "PEFT": lambda place: run_peft(base, text, arguments.steps, arguments.precision, environment, place)}
        found = {name: [] for name in contenders}
        for turn in range(arguments.rounds):
            for name in list(contenders) if turn % 2 == 0 else reversed(contenders):
                rate, peak = contenders[name](root / f"{name.replace(' ', '-')}-{turn}")
                found[name].append((rate, peak))
                print(f"round {turn + 1}/{arguments.rounds}: {name}: {rate:,.0f} tokens/s, peak {peak / 2**20:,.0f} MiB",
                      flush=True)
    rates = {name: statistics.median(rate for rate, _ in runs) for name, runs in found.items()}
    peaks = {name: statistics.median(peak for _, peak in runs) for name, runs in found.items()}
    print(f"LoRA, {arguments.precision}: {rates['gputrain LoRA'] / rates['PEFT']:.2f} of PEFT's tokens/s, "
          f"{peaks['gputrain LoRA'] / peaks['PEFT']:.2f} of its peak memory; "
          f"{peaks['gputrain LoRA'] / peaks['gputrain all weights']:.2f} of the peak memory of training all weights")


if __name__ == "__main__":
    main()
