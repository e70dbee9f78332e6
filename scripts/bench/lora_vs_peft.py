"""Compares LoRA in gputrain with PEFT on this machine's CPU, with the same base model, adapter, batch and optimizer, and
LoRA with training of all weights in gputrain. With --quantize the base is quantised (QLoRA), there by bitsandbytes. Runs
in turns; prints medians. PEFT runs in a process of its own.

usage: lora_vs_peft.py --binary build/release/bin/gputrain [--rounds N] [--steps N] [--precision bf16|fp32]
                       [--size small|medium|billion] [--quantize nf4|int8]
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
from measure import Process, Result, median_rate, run_gputrain

SIZES = {
    "small": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 4},
    "medium": {"hidden_size": 768, "intermediate_size": 2560, "num_hidden_layers": 12, "num_attention_heads": 12},
    "billion": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
                "num_key_value_heads": 8},
}
LORA = {"r": 16, "lora_alpha": 32}
BATCH, LENGTH, LR = 4, 128, 1e-4


def write_base(folder: str, sizes: dict, precision: str):
    """In a process of its own: the peak memory of a child begins with what its parent has."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(**sizes, max_position_embeddings=LENGTH, vocab_size=65, tie_word_embeddings=False)
    LlamaForCausalLM(config).to(torch.bfloat16 if precision == "bf16" else torch.float32).save_pretrained(folder)


def job(base: Path, text: Path, steps: int, precision: str, adapter: bool, quantize: str | None) -> str:
    model = {"type": "gpt", "pretrained": str(base)}
    if adapter:
        model["adapter"] = {"type": "lora", "rank": LORA["r"], "alpha": LORA["lora_alpha"], "target_modules": "all-linear"}
    if quantize:
        model["quantize"] = {"type": quantize}
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


def train_with_peft(base: str, text: str, steps: int, precision: str, quantize: str):
    """Prints the time of each step as JSON."""
    import torch
    import torch.nn.functional as F
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    symbols = Path(text).read_text()
    number = {symbol: place for place, symbol in enumerate(sorted(set(symbols)))}
    tokens = torch.tensor([number[symbol] for symbol in symbols])
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    how = {}
    if quantize:
        from transformers import BitsAndBytesConfig
        four = dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype)
        how = dict(quantization_config=BitsAndBytesConfig(**(four if quantize == "nf4" else dict(load_in_8bit=True))),
                   device_map="cpu")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, **how)
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


def run_peft(base: Path, text: Path, arguments, environment: dict, folder: Path) -> Result:
    folder.mkdir(parents=True)
    process = Process([sys.executable, __file__, "--peft", str(base), str(text), str(arguments.steps), arguments.precision,
                       arguments.quantize or ""], environment, folder / "log")
    steps = [json.loads(line) for line in process.lines()]
    return Result(rate=median_rate([(entry["step"], entry["time"]) for entry in steps], BATCH * LENGTH),
                  first_step_seconds=steps[0]["time"] - process.started, ready_bytes=0, peak_bytes=process.finish(),
                  first_loss=steps[0]["loss"], last_loss=steps[-1]["loss"])


def main():
    if sys.argv[1:2] == ["--peft"]:
        base, text, steps, precision, quantize = sys.argv[2:]
        return train_with_peft(base, text, int(steps), precision, quantize)
    if sys.argv[1:2] == ["--base"]:
        return write_base(sys.argv[2], json.loads(sys.argv[3]), sys.argv[4])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="fp32")
    parser.add_argument("--size", choices=SIZES, default="medium", help="4 million, 99 million or 1 billion parameters")
    parser.add_argument("--quantize", choices=["nf4", "int8"])
    arguments = parser.parse_args()
    environment = {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
    with tempfile.TemporaryDirectory(prefix="gputrain-bench-") as folder:
        root = Path(folder)
        base, text = root / "base", root / "text.txt"
        write_text(text)
        sizes = json.dumps(SIZES[arguments.size])
        subprocess.run([sys.executable, __file__, "--base", str(base), sizes, arguments.precision], check=True)

        def ours(adapter: bool):
            text_of = job(base, text, arguments.steps, arguments.precision, adapter, arguments.quantize)
            return lambda place: run_gputrain(arguments.binary, text_of, BATCH * LENGTH, environment, place)

        contenders = {"gputrain LoRA": ours(True),
                      "PEFT": lambda place: run_peft(base, text, arguments, environment, place)}
        if not arguments.quantize:
            contenders["gputrain all weights"] = ours(False)
        found = {name: [] for name in contenders}
        for turn in range(arguments.rounds):
            for name in list(contenders) if turn % 2 == 0 else reversed(contenders):
                one = contenders[name](root / f"{name.replace(' ', '-')}-{turn}")
                found[name].append(one)
                print(f"round {turn + 1}/{arguments.rounds}: {name}: {one.rate:,.0f} tokens/s, first step after "
                      f"{one.first_step_seconds:.1f} s, peak {one.peak_bytes / 2**20:,.0f} MiB", flush=True)

    def ratio(field: str, name: str, to: str) -> float:
        median = {one: statistics.median(getattr(run, field) for run in found[one]) for one in (name, to)}
        return median[name] / median[to]

    base = f"{arguments.quantize} base, " if arguments.quantize else ""
    print(f"LoRA, {base}{arguments.precision}: {ratio('rate', 'gputrain LoRA', 'PEFT'):.2f} of PEFT's tokens/s, "
          f"{ratio('first_step_seconds', 'gputrain LoRA', 'PEFT'):.2f} of its time to the first step, "
          f"{ratio('peak_bytes', 'gputrain LoRA', 'PEFT'):.2f} of its peak memory")
    if not arguments.quantize:
        print(f"{ratio('peak_bytes', 'gputrain LoRA', 'gputrain all weights'):.2f} of the peak memory of training all weights")


if __name__ == "__main__":
    main()
