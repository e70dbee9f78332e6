#!/usr/bin/env python3
"""Writes the table of what fits into configs/memory.md: GB that fine-tuning of published models needs, by `gputrain plan`.

    scripts/memory_table.py [--program build/release/bin/gputrain] [--check [--only MODEL] [--way WAY]]

Only the sizes of the models are needed, no weights and no GPU. --check compares the page with the program and writes nothing.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "configs/memory.md"
BEGIN = "<!-- written by scripts/memory_table.py -->\n"
END = "<!-- end -->\n"
TOKENS = 2048

QWEN2 = {"model_type": "qwen2", "rms_norm_eps": 1e-6, "rope_theta": 1e6, "vocab_size": 151936}
QWEN3 = {"model_type": "qwen3", "rms_norm_eps": 1e-6, "rope_theta": 1e6, "vocab_size": 151936, "head_dim": 128}
LLAMA3 = {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 5e5, "vocab_size": 128256}


def sizes(family, layers, channels, inner, heads, key_heads, tied):
    return {**family, "num_hidden_layers": layers, "hidden_size": channels, "intermediate_size": inner,
            "num_attention_heads": heads, "num_key_value_heads": key_heads, "tie_word_embeddings": tied,
            "hidden_act": "silu", "max_position_embeddings": TOKENS}


# Of the config.json that each was published with; of max_position_embeddings, the tokens of a row.
MODELS = {
    "Qwen2.5-0.5B": sizes(QWEN2, 24, 896, 4864, 14, 2, True),
    "Qwen3-1.7B": sizes(QWEN3, 28, 2048, 6144, 16, 8, True),
    "Qwen3-4B": sizes(QWEN3, 36, 2560, 9728, 32, 8, True),
    "Qwen3-8B": sizes(QWEN3, 36, 4096, 12288, 32, 8, False),
    "Qwen3-14B": sizes(QWEN3, 40, 5120, 17408, 40, 8, False),
    "Qwen3-32B": sizes(QWEN3, 64, 5120, 25600, 64, 8, False),
    "Llama-3.1-70B": sizes(LLAMA3, 80, 8192, 28672, 64, 8, False),
}
LORA = "adapter: {type: lora, rank: 16, target_modules: all-linear}"
WAYS = {
    "QLoRA, nf4": (f"{LORA}, quantize: {{type: nf4}}", "{type: adamw}"),
    "LoRA": (LORA, "{type: adamw}"),
    "all weights in bf16, adamw8bit": ("freeze: []", "{type: adamw8bit, master: bf16}"),
    "all weights, adamw": ("freeze: []", "{type: adamw}"),
}


def gigabytes(program, config, way):
    """Memory of a step of one row."""
    model, optimizer = way
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        job = Path(folder) / "job.yaml"
        job.write_text(f"""schema: 1
precision: bf16
model: {{type: gpt, pretrained: {folder}, {model}}}
data: {{train: {{format: synthetic, vocab_size: {config["vocab_size"]}, samples: 1000}}}}
train: {{max_steps: 10, global_batch_size: 1, activation_checkpointing: block}}
optimizer: {optimizer}
""")
        command = [program, "plan", job, "--device-memory", "100TB", "--gpus", "h100", "--json"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(ended.stderr)
    plans = json.loads(ended.stdout)["candidates"]
    return next(one["memory"]["total"] for one in plans if one["activation_checkpointing"] == "block") / 1e9


def cell_of(program, name, way):
    needed = gigabytes(program, MODELS[name], WAYS[way])
    return f"{needed:.1f}" if needed < 100 else f"{needed:,.0f}"


def cells_of(table):
    """The cells of a table in Markdown, by model and way."""
    head, _, *rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in table.splitlines()]
    return {(row[0], way): cell for row in rows for way, cell in zip(head[1:], row[1:])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=Path(__file__).parents[1] / "build/release/bin/gputrain")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", choices=MODELS, help="with --check: of this model alone")
    parser.add_argument("--way", choices=WAYS, help="with --check: of this way alone")
    options = parser.parse_args()
    wanted = [(name, way) for name in MODELS for way in WAYS
              if options.only in (None, name) and options.way in (None, way)]
    with ThreadPoolExecutor(2) as threads:
        found = dict(zip(wanted, threads.map(lambda cell: cell_of(options.program, *cell), wanted)))
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    table, _, after = rest.partition(END)
    if options.check:
        said = cells_of(table)
        for cell, needed in found.items():
            if said.get(cell) != needed:
                print(f"{PAGE}: {cell} is {said.get(cell)} there, and {needed} by the program")
        return 0 if all(said.get(cell) == needed for cell, needed in found.items()) else 1
    head, *rows = [f"| {' | '.join(row)} |\n" for row in
                   [["model", *WAYS], *([name, *(found[name, way] for way in WAYS)] for name in MODELS)]]
    PAGE.write_text(before + BEGIN + head + "|-" * (len(WAYS) + 1) + "|\n" + "".join(rows) + END + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
