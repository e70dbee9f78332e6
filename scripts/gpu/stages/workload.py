"""What most people train: fine-tuning with adapters on packed and plain texts, experts, all weights of a small model,
an encoder and a vision transformer. Says the rate, and what was expected of an H100.

usage: workload.py NAME GPUTRAIN SECONDS [--tiny]
  --tiny  in sizes for a CPU, to try the stage itself; also by TINY_WORKLOADS in the environment
"""

import argparse
import json
import math
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path

from training import Run, say_result, train, write_job

QWEN3 = {"position": "rotary", "norm": "rmsnorm", "activation": "swiglu", "qk_norm": True, "rope_theta": 1e6}
SIZES_8B = QWEN3 | {"n_layer": 36, "n_head": 32, "n_kv_head": 8, "n_embd": 4096, "n_inner": 12288, "head_dim": 128,
                    "vocab_size": 151936, "tie_embeddings": False}
SIZES_06B = QWEN3 | {"n_layer": 28, "n_head": 16, "n_kv_head": 8, "n_embd": 1024, "n_inner": 3072, "head_dim": 128,
                     "vocab_size": 151936, "tie_embeddings": False}
SIZES_HALF_B = QWEN3 | {"n_layer": 24, "n_head": 14, "n_kv_head": 2, "n_embd": 896, "n_inner": 4864,
                        "vocab_size": 151936, "qk_norm": False, "qkv_bias": True}
EXPERTS = SIZES_HALF_B | {"n_layer": 12, "n_expert": 8, "experts_per_token": 2, "expert_inner": 2432, "qkv_bias": False,
                          "qk_norm": True}
TINY = {"n_layer": 2, "n_head": 2, "n_kv_head": 1, "n_embd": 32, "n_inner": 64, "head_dim": 16, "vocab_size": 512}
ONE = b"\x80\x3f"  # in bf16
WORDS = [f"w{number}" for number in range(500)]
LORA = {"type": "lora", "rank": 16, "alpha": 32, "target_modules": "all-linear"}


def texts(folder: Path, longest: int, count: int, key: str = "prompt") -> str:
    """Questions and answers of many lengths, up to `longest` bytes, which are tokens."""
    chosen = random.Random(1)
    path = folder / "texts.jsonl"
    with path.open("w") as file:
        for _ in range(count):
            length = min(longest - 1, max(16, int(chosen.lognormvariate(6, 0.8))))
            asked = length // 3
            words = " ".join(chosen.choice(WORDS) for _ in range(length // 4))
            line = {"text": words} if key == "text" else {"prompt": "q" * asked, "completion": "a" * (length - asked)}
            file.write(json.dumps(line) + "\n")
    return str(path)


def tokens(model: dict, length: int, batch: int, packed: bool, expected: str, adapter: bool = False, steps: int = 40,
           quantize: str = "") -> dict:
    return {"model": model, "length": length, "batch": batch, "packed": packed, "adapter": adapter, "steps": steps,
            "quantize": {"quantize": {"type": quantize}} if quantize else {}, "rate": "train/tokens_per_second", "unit": "tokens/s", "expected": expected}


WORKLOADS = {
    "lora-packed": tokens(SIZES_8B, 2048, 4, True, "13k or more; 9 to 11k with a mask", adapter=True),
    "qlora-packed": tokens(SIZES_8B, 2048, 4, True, "12k or more, in 8.5 GB", adapter=True, quantize="nf4"),
    "lora-long": tokens(SIZES_8B, 8192, 1, True, "13k or more; 5 to 7k with a mask", adapter=True),
    "lora-plain": tokens(SIZES_06B, 2048, 8, False, "few new kernels after 100 steps", adapter=True, steps=300),
    "experts": tokens(EXPERTS, 1024, 16, False, "a CUDA graph", steps=60),
    "full": tokens(SIZES_HALF_B, 1024, 16, True, "115 to 135k"),
    "bert": {"rate": "train/tokens_per_second", "unit": "tokens/s", "expected": "370 to 590k", "steps": 40},
    "vit": {"rate": "train/samples_per_second", "unit": "images/s", "expected": "3,400 to 3,750", "steps": 30},
}


def job_of(name: str, folder: Path, tiny: bool, layers: int = 0) -> dict:
    """`layers`: instead of the model's own number, to count what a step does: weights are 0 then."""
    work = WORKLOADS[name]
    depth = {"n_layer": layers} if layers else {}
    job = {"schema": 1, "name": name, "device": "cpu" if tiny else "cuda", "precision": "bf16",
           "optimizer": {"type": "adamw", "lr": 1e-4}, "checkpoint": {"interval": None}, "log": {"interval": 1}}
    if name == "vit":
        batch, size = (2, 32) if tiny else (256, 224)
        sizes = {"patch_size": 16, "n_layer": 2, "n_head": 2, "n_embd": 32} if tiny else {}
        return job | {"model": {"type": "vit", "config": sizes | depth | {"num_classes": 1000}},
                      "data": {"train": {"format": "synthetic", "samples": 2 * batch, "num_classes": 1000},
                               "image": {"size": size}},
                      "train": {"max_steps": work["steps"], "global_batch_size": batch}}
    if name == "bert":
        length, batch = (32, 2) if tiny else (512, 32)
        sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32} if tiny else {}
        return job | {"model": {"type": "bert", "config": sizes | depth | {"head": "mlm", "vocab_size": 30522, "dropout": 0.1}},
                      "data": {"train": {"path": texts(folder, 8 * length, 64 * batch, "text"), "format": "jsonl"},
                               "text": {"tokenizer": "words", "max_length": length}},
                      "train": {"max_steps": work["steps"], "global_batch_size": batch}}
    length, batch = (64, 2) if tiny else (work["length"], work["batch"])
    experts = {"expert_inner": 32} if tiny and "n_expert" in work["model"] else {}
    sizes = work["model"] | (TINY | experts if tiny else {}) | {"block_size": length} | depth
    model = {"type": "gpt", "config": sizes}
    if work["adapter"]:
        model = {"type": "gpt", "pretrained": write_qwen3(folder / "pretrained", sizes, is_random=not layers), "adapter": LORA}
        model |= work["quantize"]
    return job | {"model": model,
                  "data": {"train": {"path": texts(folder, length, 2000), "format": "jsonl"},
                           "text": {"tokenizer": "bytes", "max_length": length, "packing": work["packed"]}},
                  "train": {"max_steps": 8 if tiny else work["steps"], "global_batch_size": batch}}


def shapes_of(sizes: dict) -> dict:
    """The tensors of Qwen3ForCausalLM."""
    channels, inner, head = sizes["n_embd"], sizes["n_inner"], sizes.get("head_dim", sizes["n_embd"] // sizes["n_head"])
    queries, keys = sizes["n_head"] * head, sizes["n_kv_head"] * head
    block = {"input_layernorm": [channels], "post_attention_layernorm": [channels],
             "self_attn.q_proj": [queries, channels], "self_attn.k_proj": [keys, channels],
             "self_attn.v_proj": [keys, channels], "self_attn.o_proj": [channels, queries],
             "self_attn.q_norm": [head], "self_attn.k_norm": [head], "mlp.gate_proj": [inner, channels],
             "mlp.up_proj": [inner, channels], "mlp.down_proj": [channels, inner]}
    shapes = {"model.embed_tokens": [sizes["vocab_size"], channels], "model.norm": [channels],
              "lm_head": [sizes["vocab_size"], channels]}
    for layer in range(sizes["n_layer"]):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in block.items()}
    return {f"{name}.weight": shape for name, shape in shapes.items()}


def random_bf16(count: int) -> bytes:
    """Numbers of either sign, from 1/128 to 1/32."""
    both = bytearray(2 * count)
    both[0::2] = os.urandom(count)
    both[1::2] = os.urandom(count).translate(bytes([0x3C] * 128 + [0xBC] * 128))
    return bytes(both)


def write_qwen3(folder: Path, sizes: dict, is_random: bool) -> str:
    """A folder as people download it, because adapters are trained on a pretrained model. Weights that are not random
    are 0, in a file without any blocks on the disk."""
    folder.mkdir()
    shapes, header, begin = shapes_of(sizes), {}, 0
    for name, shape in shapes.items():
        end = begin + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    block = random_bf16(min(1 << 24, max(map(math.prod, shapes.values()))))
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        if not is_random:
            file.truncate(8 + len(text) + end)
        for shape in shapes.values() if is_random else ():
            left = 2 * math.prod(shape)
            while left > 0:  # the same numbers again and again: only their sizes matter
                part = (block if len(shape) > 1 else ONE * (left // 2))[:left]
                file.write(part)
                left -= len(part)
    config = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": sizes["n_embd"],
              "intermediate_size": sizes["n_inner"], "num_hidden_layers": sizes["n_layer"],
              "num_attention_heads": sizes["n_head"], "num_key_value_heads": sizes["n_kv_head"],
              "head_dim": sizes.get("head_dim", sizes["n_embd"] // sizes["n_head"]), "vocab_size": sizes["vocab_size"],
              "max_position_embeddings": sizes["block_size"], "rms_norm_eps": 1e-6, "rope_theta": 1e6,
              "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def rate_of(folder: Path, key: str) -> float:
    """The median of the second half of the steps; 0 if there is none."""
    path = folder / "metrics.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    rates = [entry[key] for entry in entries if entry.get("kind") == "train" and entry.get(key)]
    return statistics.median(rates[len(rates) // 2:]) if rates else 0.0


def graphs_of(run: Run) -> str:
    return "in CUDA graphs" if "a step is one CUDA graph from here on" in run.log else "no CUDA graph"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=WORKLOADS)
    parser.add_argument("binary")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--tiny", action="store_true", default="TINY_WORKLOADS" in os.environ)
    arguments = parser.parse_args()
    work = WORKLOADS[arguments.name]
    with tempfile.TemporaryDirectory(prefix="gputrain-workload-") as name:
        folder = Path(name)
        job = write_job(folder / "job", job_of(arguments.name, folder, arguments.tiny))
        run = train(arguments.binary, job, folder / "run", limit=arguments.seconds)
        rate = rate_of(folder / "run", work["rate"])
    if run.trouble:
        say_result(f"{arguments.name} failed after {run.seconds:.0f} s", [f"{arguments.name}: {run.trouble}"])
        return 1
    memory = run.summary["peak_memory_bytes"] / 2**30
    says = f"{arguments.name} {rate:,.0f} {work['unit']} (expected: {work['expected']}), {memory:.1f} GiB, {graphs_of(run)}"
    say_result(f"{says}; loss {run.losses[0]:.4f} to {run.losses[-1]:.4f}", rate=rate)
    return 0


if __name__ == "__main__":
    sys.exit(main())
