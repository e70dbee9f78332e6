#!/usr/bin/env python3
"""Predicts how decoders of 7 and 70 billion weights train on many GPUs, by `gputrain plan`, as tables for README.md.

    scripts/bench/predict_scale.py [--program build/release/bin/gputrain] [--gpus h100] [--device-memory 80GB]

Nothing is trained, and no GPU is needed.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

# Shapes of Llama 2, on texts of 4,096 tokens.
LLAMA = "position: rotary, norm: rmsnorm, activation: swiglu, tie_embeddings: false, vocab_size: 32000, block_size: 4096"
MODELS = {
    "7B": f"n_layer: 32, n_head: 32, n_embd: 4096, n_inner: 11008, {LLAMA}",
    "70B": f"n_layer: 80, n_head: 64, n_kv_head: 8, n_embd: 8192, n_inner: 28672, {LLAMA}",
}
RANKS = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]
SAMPLES = 1024  # of a step: four million tokens; one for each rank where there are more ranks


def job_of(model, samples):
    return f"""schema: 1
precision: bf16
model: {{type: gpt, config: {{{model}}}}}
data: {{train: {{format: synthetic, vocab_size: 32000, samples: 1000000000}}}}
train: {{max_steps: 1000, global_batch_size: {samples}, max_grad_norm: 1.0}}
optimizer: {{type: adamw, lr: 3e-4}}
"""


def best(options, model, ranks):
    """The best candidate, or None if nothing fits."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.yaml"
        job.write_text(job_of(model, max(SAMPLES, ranks)))
        command = [options.program, "plan", job, "--world-size", str(ranks), "--json"]
        command += ["--gpus", options.gpus, "--device-memory", options.device_memory]
        ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode not in (0, 6):
        raise SystemExit(ended.stderr)
    plans = json.loads(ended.stdout)["plans"]
    return plans[0] if plans else None


def split_of(plan):
    """How ranks share the layers and texts, as the page of `plan` says it."""
    parts = [f"{key} {plan[key]}" for key in ("tensor", "pipeline", "context") if plan[key] > 1]
    if plan["virtual_stages"] > 1:
        parts = [f"{one} x {plan['virtual_stages']}" if one.startswith("pipeline") else one for one in parts]
    return ", ".join(parts)


def memory_of(plan):
    """Bytes of the rank that has most."""
    return max(plan[stage]["total"] for stage in ("memory", "memory_of_last_stage") if stage in plan)


def print_table(options, name, model):
    print(f"\n{name}:\n")
    print("| ranks | `shard` x `replicate` | split | micro-batch x passes | checkpointing | memory | step | tokens/s | MFU | efficiency | limit |")
    print("|-|-|-|-|-|-|-|-|-|-|-|")
    first = None
    for ranks in RANKS:
        plan = best(options, model, ranks)
        if plan is None:
            print(f"| {ranks:,} | nothing fits |", flush=True)
            continue
        per_rank = plan["samples_per_second"] / ranks
        first = first or per_rank
        cells = [
            f"{ranks:,}",
            f"{plan['shard']} x {plan['replicate']}",
            split_of(plan),
            f"{plan['micro_batch']} x {plan['accumulation']}",
            plan["activation_checkpointing"],
            f"{memory_of(plan) / 2**30:.1f} GiB",
            f"{plan['seconds']['step']:.2f} s",
            f"{plan['samples_per_second'] * 4096 / 1e3:,.0f}k",
            f"{100 * plan['mfu']:.1f} %",
            f"{per_rank / first:.2f}",
            plan["limit"],
        ]
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=Path(__file__).parents[2] / "build/release/bin/gputrain")
    parser.add_argument("--gpus", default="h100")
    parser.add_argument("--device-memory", default="80GB")
    options = parser.parse_args()
    for name, model in MODELS.items():
        print_table(options, name, model)


if __name__ == "__main__":
    main()
