"""Compares `gputrain generate` with transformers' generate() on this machine's CPU: greedy tokens of a Llama with random
weights, in fp32. Runs pairs in alternating order, each program in a process of its own; both time only the generation.
transformers warms up first, gputrain does not. Prints medians of tokens per second and of the ratios in each pair, and
whether both wrote the same tokens.

usage: generate_vs_transformers.py --binary build/release/bin/gputrain [--pairs N] [--threads N] [--batch-size 1,4]
                                   [--output bench.json]
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import machine

PROMPT_TOKENS, NEW_TOKENS = 64, 128
SIZES = dict(num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, hidden_size=512, intermediate_size=1376,
             vocab_size=32000, max_position_embeddings=1024, bos_token_id=None, eos_token_id=None, pad_token_id=None)


def byte_characters() -> list[str]:
    """The characters that stand for bytes in files of byte-level tokenizers."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(256 + others.index(byte)) for byte in range(256)]


def write_model(folder: Path) -> int:
    """A model, and a tokenizer with a token for each byte. Returns its number of parameters."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**SIZES))
    model.save_pretrained(folder)
    vocabulary = {character: byte for byte, character in enumerate(byte_characters())}
    alphabet = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": alphabet, "decoder": alphabet,
                 "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return sum(parameter.numel() for parameter in model.parameters())


def write_prompts(folder: Path, count: int) -> Path:
    path = folder / f"prompts{count}.jsonl"
    texts = ["".join(chr(97 + (i * i + 7 * number) % 26) for i in range(PROMPT_TOKENS)) for number in range(count)]
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return path


def child(folder: str, prompts: str, threads: int):
    """Runs transformers and prints its tokens and seconds as JSON."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rows = torch.tensor([list(json.loads(line)["prompt"].encode()) for line in Path(prompts).read_text().splitlines()])
    mask = torch.ones_like(rows)
    generate = lambda count: model.generate(rows, attention_mask=mask, max_new_tokens=count, do_sample=False, pad_token_id=0)
    generate(8)
    begin = time.perf_counter()
    tokens = generate(NEW_TOKENS)
    print(json.dumps({"seconds": time.perf_counter() - begin, "tokens": tokens[:, PROMPT_TOKENS:].tolist()}))


def run(command: list[str], threads: int) -> subprocess.CompletedProcess:
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr}")
    return done


def run_gputrain(binary: str, folder: Path, prompts: Path, batch: int, threads: int) -> dict:
    done = run([binary, "generate", str(folder), "--prompts", str(prompts), "--json", "--max-new-tokens", str(NEW_TOKENS),
                "--batch-size", str(batch), "--set", "device=cpu"], threads)
    tokens = [json.loads(line)["tokens"] for line in done.stdout.splitlines()]
    rate = float(re.search(r"([\d.]+) tokens/s", done.stderr).group(1))
    return {"rate": rate, "tokens": tokens}


def run_transformers(folder: Path, prompts: Path, batch: int, threads: int) -> dict:
    done = run([sys.executable, __file__, "--child", str(folder), str(prompts), "--threads", str(threads)], threads)
    result = json.loads(done.stdout.splitlines()[-1])
    return {"rate": batch * NEW_TOKENS / result["seconds"], "tokens": result["tokens"]}


def compare(options, folder: Path, batch: int) -> dict:
    prompts = write_prompts(folder, batch)
    ours, theirs = [], []
    for pair in range(options.pairs):
        order = [lambda: ours.append(run_gputrain(options.binary, folder, prompts, batch, options.threads)),
                 lambda: theirs.append(run_transformers(folder, prompts, batch, options.threads))]
        for start in order if pair % 2 == 0 else reversed(order):
            start()
    ratios = [a["rate"] / b["rate"] for a, b in zip(ours, theirs)]
    return {"batch": batch, "gputrain": statistics.median(one["rate"] for one in ours),
            "transformers": statistics.median(one["rate"] for one in theirs), "ratio": statistics.median(ratios),
            "ratios": ratios, "same_tokens": all(a["tokens"] == b["tokens"] for a, b in zip(ours, theirs))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "PROMPTS"), help=argparse.SUPPRESS)
    parser.add_argument("--binary")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", default="1,4")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.child:
        return child(*options.child, options.threads)
    report = {"machine": machine(), "threads": options.threads, "prompt": PROMPT_TOKENS, "new": NEW_TOKENS, "results": []}
    with tempfile.TemporaryDirectory() as name:
        report["parameters"] = write_model(Path(name))
        print(f"{report['machine']['cpu']}, {options.threads} threads, {report['parameters'] / 1e6:.1f}M parameters, fp32, "
              f"{PROMPT_TOKENS} + {NEW_TOKENS} tokens, tokens/s")
        for batch in map(int, options.batch_size.split(",")):
            result = compare(options, Path(name), batch)
            report["results"].append(result)
            print(f"batch {batch}: gputrain {result['gputrain']:.1f}, transformers {result['transformers']:.1f}, "
                  f"ratio {result['ratio']:.2f} ({', '.join(f'{ratio:.2f}' for ratio in result['ratios'])}), "
                  f"{'same' if result['same_tokens'] else 'OTHER'} tokens")
    if options.output:
        options.output.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
