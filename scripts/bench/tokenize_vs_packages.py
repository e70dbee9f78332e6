"""Compares `gputrain data tokenize` with the packages tokenizers and tiktoken: the same tokens, and bytes per second.

usage: tokenize_vs_packages.py --binary build/release/bin/gputrain --vocabulary FOLDER --text FILE [--rounds N] [--megabytes N]

FOLDER has GPT-2's vocab.json and merges.txt. FILE is repeated until it has N megabytes, and cut into documents at empty
lines. Runs in turns on one CPU and on two; prints medians. For the packages only the encoding is timed, for gputrain the
whole work: reading the tokenizer and the file, encoding, and writing the tokens.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def byte_of_character():
    """GPT-2's printable stand-ins for bytes."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {chr(256 + i): byte for i, byte in enumerate(others)}


def with_tiktoken(folder):
    import tiktoken

    byte_of = byte_of_character()
    vocabulary = json.loads((folder / "vocab.json").read_text())
    ranks = {bytes(byte_of[c] for c in text): rank for text, rank in vocabulary.items() if text != "<|endoftext|>"}
    return tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})


def with_tokenizers(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def time_tiktoken(encoding, documents, threads):
    begin = time.perf_counter()
    encoded = encoding.encode_ordinary_batch(documents, num_threads=threads)
    return time.perf_counter() - begin, [token for tokens in encoded for token in tokens]


def time_tokenizers(tokenizer, documents):
    begin = time.perf_counter()
    encoded = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
    return time.perf_counter() - begin, [token for one in encoded for token in one.ids]


def time_gputrain(binary, folder, lines, cpus):
    import numpy

    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out.bin"
        begin = time.perf_counter()
        subprocess.run(["taskset", "-c", cpus, binary, "data", "tokenize", lines, "--tokenizer", folder, "--output", out,
                        "--eos", "none"], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - begin, numpy.fromfile(out, numpy.uint16, offset=1024).tolist()


def documents_of(text, megabytes):
    whole = text * (megabytes * 1_000_000 // len(text.encode()) + 1)
    return [part for part in re.split(r"(?<=\n\n)", whole) if part]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--vocabulary", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=20)
    arguments = parser.parse_args()
    documents = documents_of(arguments.text.read_text(), arguments.megabytes)
    size = sum(len(document.encode()) for document in documents)
    tiktoken, tokenizers = with_tiktoken(arguments.vocabulary), with_tokenizers(arguments.vocabulary)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as lines:
        lines.writelines(json.dumps({"text": document}) + "\n" for document in documents)
        lines.flush()
        for threads, cpus in ((1, "0"), (2, "0,1")):
            os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
            os.environ["RAYON_NUM_THREADS"] = str(threads)  # read once: the first run of the process decides
            seconds = {"gputrain": [], "tokenizers": [], "tiktoken": []}
            for _ in range(arguments.rounds):
                ours, tokens = time_gputrain(arguments.binary, arguments.vocabulary, lines.name, cpus)
                theirs, same = time_tiktoken(tiktoken, documents, threads)
                others, also = time_tokenizers(tokenizers, documents)
                assert tokens == same == also, "the tokens differ"
                for name, took in zip(seconds, (ours, others, theirs)):
                    seconds[name].append(took)
            median = {name: statistics.median(all_of) for name, all_of in seconds.items()}
            rates = "  ".join(f"{name} {size / took / 1e6:.1f} MB/s" for name, took in median.items())
            print(f"{threads} CPU{'s' * (threads > 1)}  {rates}  gputrain / tokenizers "
                  f"{median['tokenizers'] / median['gputrain']:.2f}  gputrain / tiktoken "
                  f"{median['tiktoken'] / median['gputrain']:.2f}  {len(tokens):,} equal tokens", flush=True)


if __name__ == "__main__":
    main()
