"""Texts that a model of 8 billion random weights writes: one alone, and 32 side by side. Says the rate after the first
ones, which choose kernels, and what was expected of an H100.

usage: generation.py GPUTRAIN SECONDS [--tiny]
  --tiny  in sizes for a CPU, to try the stage itself; also by TINY_WORKLOADS in the environment
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from training import say_result
from workload import SIZES_8B, TINY, write_qwen3

TOKENS = 64
EXPECTED = {1: "100 or more; reading 16.4 GB of weights takes 4.9 ms", 32: "2,500 or more"}  # tokens/s


def write_tokenizer(folder: Path, vocabulary: int):
    """A token for each byte, and words for the other numbers: a random model writes all of them."""
    others = iter(range(256, 512))
    spelled = [chr(byte if 32 < byte < 127 or (byte > 160 and byte != 173) else next(others)) for byte in range(256)]
    words = {text: number for number, text in enumerate(spelled)}
    words |= {f"w{number}": number for number in range(256, vocabulary)}
    cut = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps(
        {"version": "1.0", "added_tokens": [], "pre_tokenizer": cut, "decoder": cut,
         "model": {"type": "BPE", "vocab": words, "merges": []}}))


def seconds_of_second_batch(command: list, prompts: int, limit: float) -> tuple[float, int, str]:
    """How long the program takes for the second batch of texts, how many tokens that has, and why it failed."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    killer = threading.Timer(limit, child.kill)
    killer.start()
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(child.stderr))
    reader.start()
    lines, ends = [], []
    for line in child.stdout:
        lines.append(json.loads(line))
        if len(lines) % prompts == 0:
            ends.append(time.time())
    code = child.wait()
    killer.cancel()
    reader.join()
    if code != 0 or len(ends) != 2:
        return 0.0, 0, f"exit code {code}: {' '.join(said)[-300:].strip()}"
    return ends[1] - ends[0], sum(len(line["tokens"]) for line in lines[prompts:]), ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--tiny", action="store_true", default="TINY_WORKLOADS" in os.environ)
    arguments = parser.parse_args()
    deadline, said, problems, rates = time.time() + arguments.seconds, [], [], {}
    with tempfile.TemporaryDirectory(prefix="gputrain-generation-") as name:
        sizes = SIZES_8B | (TINY if arguments.tiny else {}) | {"block_size": 1024}
        folder = Path(write_qwen3(Path(name) / "model", sizes, is_random=True))
        write_tokenizer(folder, sizes["vocab_size"])
        for prompts, expected in EXPECTED.items():
            path = Path(name) / f"{prompts}.txt"
            path.write_text("".join(f"{'question ' * 4}{number}\n" for number in range(2 * prompts)))
            command = [arguments.binary, "generate", str(folder), "--set", "precision=bf16", "--set",
                       "device=" + ("cpu" if arguments.tiny else "cuda"), "--prompts", str(path), "--batch-size",
                       str(prompts), "--max-new-tokens", str(TOKENS), "--json"]
            print("$ " + " ".join(command), flush=True)
            seconds, tokens, trouble = seconds_of_second_batch(command, prompts, deadline - time.time())
            if trouble:
                problems.append(f"{prompts} at a time: {trouble}")
                continue
            rates[prompts] = tokens / max(seconds, 1e-9)
            said.append(f"{prompts} at a time {rates[prompts]:,.0f} tokens/s (expected: {expected})")
    say_result("generation: " + "; ".join(said or ["failed"]), problems, rates=rates)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
