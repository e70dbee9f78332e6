"""Counts what a step of training, or a token that a model writes, costs an H100, without a GPU: every kernel, product
and copy with its bytes and operations, from a run of the real program on the fake GPU (tests/fake_cuda), and the time
that these need at given rates. The layers of a model are alike, so that two and three of them are run and the others
are added.

usage: ledger.py [--build build/cuda] [--products TFLOP/S] [--memory TB/S] [--check FILE | --write FILE] [NAME...]
  --check  fails if a step has more calls, bytes or operations than FILE allows, or so much less that FILE is out of date
  --write  writes the counts to FILE
Build first: cmake --build build/cuda --target gputrain fake_cuda fake_cuda_driver fake_cuda_operators
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts/gpu/stages"), str(ROOT / "scripts/bench")]

import compare  # noqa: E402
import generation  # noqa: E402
import workload  # noqa: E402

GAP = 1e-6  # seconds between the calls of a graph
ALLOWED = 0.002  # part by which counts may differ from the budget
# Attention on an H100 by FlashAttention 2, of the operations that count. Published: 350 to 400 TFLOP/s, backward 250 to
# 300, for heads of 128 channels.
ATTENTION, ATTENTION_BACKWARD = 375e12, 275e12
TEXT = 1000  # tokens of a text where texts share rows


@dataclass
class Row:
    """Calls of a kind."""

    calls: float = 0
    bytes: float = 0
    operations: float = 0
    seconds: float = 0

    def __add__(self, other: "Row") -> "Row":
        return Row(self.calls + other.calls, self.bytes + other.bytes, self.operations + other.operations,
                   self.seconds + other.seconds)

    def __mul__(self, factor: float) -> "Row":
        return Row(self.calls * factor, self.bytes * factor, self.operations * factor, self.seconds * factor)


@dataclass
class Workload:
    command: Callable[[Path, int], list]  # of a folder for its files, and the number of layers
    layers: int  # 0: the model is run as it is
    units: int  # of a step
    unit: str
    counted: float = 1  # part of the pairs of positions that attention computes and that count
    measured: str = ""  # on an H100, by first.sh


def write_texts(folder: Path, is_packed: bool) -> str:
    """Texts of TEXT tokens that share rows, or texts longer than a row."""
    path = folder / "texts.jsonl"
    answer = {"prompt": "q" * (TEXT // 3), "completion": "a" * (TEXT - TEXT // 3 - 8)}
    line = json.dumps(answer if is_packed else {"text": "one " * 1000})
    path.write_text((line + "\n") * 800)
    return str(path)


def training(job: dict, folder: Path) -> list:
    job["train"] = job["train"] | {"max_steps": 7, "nonfinite": "skip", "max_skips_in_a_row": 1000}
    job |= {"checkpoint": {"interval": None}, "log": {"interval": 100}}
    return ["run", workload.write_job(folder / "job", job), "--accept", "--output-dir", folder / "run"]


def of_workload(name: str):
    """A job of first.sh with other numbers of layers and texts of one length."""
    def command(folder: Path, layers: int) -> list:
        made = workload.job_of(name, folder, tiny=False, layers=layers)
        if text := made["data"].get("text"):
            made["data"]["train"]["path"] = write_texts(folder, text.get("packing", False))
        return training(made, folder)
    return command


def of_comparison(name: str):
    def command(folder: Path, layers: int) -> list:
        made = json.loads(json.dumps(compare.WORKLOADS[name]["job"]))
        if layers:
            made["model"]["config"]["n_layer"] = layers
        return training(made, folder)
    return command


def of_generation(folder: Path, layers: int) -> list:
    sizes = workload.SIZES_8B | {"block_size": 1024, "n_layer": layers}
    model, prompts = Path(workload.write_qwen3(folder / "model", sizes, is_random=False)), folder / "prompts.txt"
    generation.write_tokenizer(model, sizes["vocab_size"])
    prompts.write_text("a question\n")
    return ["generate", model, "--set", "precision=bf16", "--set", "device=cuda", "--prompts", prompts,
            "--max-new-tokens", "12"]


WORKLOADS = {
    "lora-packed": Workload(of_workload("lora-packed"), 36, 4 * 2048, "tokens/s", 1 / 2),
    "qlora-packed": Workload(of_workload("qlora-packed"), 36, 4 * 2048, "tokens/s", 1 / 2),
    "lora-long": Workload(of_workload("lora-long"), 36, 8192, "tokens/s", 1 / 2),
    "full": Workload(of_workload("full"), 24, 16 * 1024, "tokens/s", 1 / 2),
    "gpt2": Workload(of_comparison("gpt2"), 12, 32 * 1024, "tokens/s", 1 / 2, "59.7 ms, 549k tokens/s"),
    "resnet50": Workload(of_comparison("resnet50-bf16"), 0, 256, "images/s", 1,
                         "44.4 ms, 5,765 images/s, when the sum was 40.4 ms"),
    "vit": Workload(of_workload("vit"), 12, 256, "images/s"),
    "bert": Workload(of_workload("bert"), 12, 32, "sequences/s"),
    "decoding": Workload(of_generation, 36, 1, "tokens/s"),
}


def run_on_fake_gpu(build: Path, command: list, folder: Path) -> list[dict]:
    """The lines of the ledger of a run, with the operator of LibTorch at each of its kernels."""
    fake = build / "tests/fake_cuda"
    environment = os.environ | {
        "LD_PRELOAD": f"{fake}/libfake_cuda.so:{fake}/libfake_cuda_operators.so", "LD_LIBRARY_PATH": f"{fake}/driver",
        "PRETEND_GPU_LEDGER": str(folder / "ledger"), "GPUTRAIN_KERNEL_CHOICES": str(folder / "kernel_choices.jsonl"),
        "PRETEND_GPU_REPORT": str(folder / "report")}
    run = subprocess.run([build / "bin/gputrain", *command], text=True, env=environment, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT)
    if run.returncode != 0:
        sys.exit(f"the run on the fake GPU failed:\n{run.stdout[-3000:]}")
    ledgers = sorted(folder.glob("ledger.[0-9]*"), key=lambda one: one.stat().st_size)
    lines = [json.loads(line) for line in ledgers[-1].read_text().splitlines()]
    operators = {}
    for path in folder.glob("ledger.operators.*"):
        if path.suffix == ledgers[-1].suffix:
            operators = {one["operator"]: one for one in map(json.loads, path.read_text().splitlines())}
    for line in lines:
        if line.get("by"):
            line["by"] = operators.get(line["by"])
    return lines


def calls_of_last_step(lines: list[dict]) -> list[dict]:
    """The calls of the last graph and those between it and the launch before."""
    graphs, between, step = defaultdict(list), [], []
    for line in lines:
        if "launch" in line:
            step, between = between + graphs[line["launch"]], []
        elif line["graph"]:
            graphs[line["graph"]].append(line)
        else:
            between.append(line)
    if not step:
        sys.exit("no step was a CUDA graph")
    return [call for call in step if call["call"] not in ("graph", "event")]


WRITES_ONLY = {"aten::fill_", "aten::zero_", "aten::copy_"}  # their first input is not read
READS_SOME = {"aten::embedding", "aten::index_select", "aten::index", "aten::gather", "aten::take_along_dim"}


def bytes_of_operator(by: dict) -> float:
    tensors = [one for one in by["inputs"] if isinstance(one, dict)]
    written = sum(one["bytes"] for one in by["outputs"] if isinstance(one, dict))
    if by["name"] in READS_SOME:
        return 2 * written
    if by["name"] in WRITES_ONLY:
        tensors = tensors[1:]
    return written + sum(one["bytes"] for one in tensors)


def operations_of_attention(by: dict) -> float:
    """Of all pairs of positions of FlashAttention: of 2 products forward and 5 backward."""
    sizes = [one["sizes"] for one in by["inputs"] if isinstance(one, dict)]
    is_backward = "backward" in by["name"]
    query = sizes[1] if is_backward else sizes[0]  # [tokens, heads, channels] or [batch, heads, time, channels]
    longest = max(one for one in by["inputs"] if isinstance(one, int)) if len(query) == 3 else query[2]
    elements = 1
    for size in query:
        elements *= size
    return (10 if is_backward else 4) * elements * longest


def named_rows(calls: list[dict], rates: dict, work: Workload) -> dict[str, Row]:
    rows, met = defaultdict(Row), set()
    for call in calls:
        by, kind = call["by"] or None, call["kind"]
        filled = work.units / call["places"] if call["places"] else 1  # of a graph for more and longer texts
        row = Row(1, call["bytes"] * filled, call["operations"] * filled)
        name, rate = kind or "unknown", rates["products"]
        if not kind and by:
            name = by["name"]
            if by["operator"] not in met:  # the operator's tensors once, whatever the number of its kernels
                met.add(by["operator"])
                row.bytes = bytes_of_operator(by)
                if "attention" in name:
                    row.operations = operations_of_attention(by)
        elif kind == "product" and by and by["name"].startswith("aten::"):
            name = "product by ATen"
        if "attention" in name:
            row.operations *= work.counted
            rate = ATTENTION_BACKWARD if "backward" in name else ATTENTION
        row.seconds = GAP + max(row.bytes / rates["memory"], row.operations / rate)
        rows[name] += row
    return rows


def rows_of(name: str, build: Path, rates: dict) -> dict[str, Row]:
    work = WORKLOADS[name]
    found = []
    for layers in (2, 3) if work.layers else (0,):
        with tempfile.TemporaryDirectory(prefix="gputrain-ledger-") as name_of_folder:
            folder = Path(name_of_folder)
            calls = calls_of_last_step(run_on_fake_gpu(build, work.command(folder, layers), folder))
            if unknown := unknown_calls(calls):
                sys.exit(f"{name}: nothing knows what these calls cost: {', '.join(unknown)}")
            found.append(named_rows(calls, rates, work))
    if len(found) == 1:
        return found[0]
    two, three = found
    return {one: two[one] + (three[one] + two[one] * -1) * (work.layers - 2) for one in sorted(set(two) | set(three))}


def unknown_calls(calls: list[dict]) -> list[str]:
    """The calls that are neither described by their library nor made by an operator of ATen."""
    def is_of_aten(call: dict) -> bool:
        return (call["by"] or {}).get("name", "").startswith("aten::")
    return sorted({call["call"] for call in calls if not call["kind"] and not is_of_aten(call)})


def show(name: str, rows: dict[str, Row]) -> Row:
    work, total = WORKLOADS[name], sum(rows.values(), Row())
    print(f"\n{name}: {total.seconds * 1e3:.1f} ms, {work.units / total.seconds:,.0f} {work.unit}"
          + (f"; measured: {work.measured}" if work.measured else ""))
    print(f"  {'':44} {'calls':>7} {'GB':>9} {'TFLOP':>9} {'ms':>8}")
    for one, row in sorted(rows.items(), key=lambda item: -item[1].seconds) + [("sum", total)]:
        print(f"  {one:44} {row.calls:7.0f} {row.bytes / 1e9:9.2f} {row.operations / 1e12:9.2f} {row.seconds * 1e3:8.2f}")
    return total


def counts_of(total: Row) -> dict:
    return {"calls": round(total.calls), "gigabytes": round(total.bytes / 1e9, 3),
            "teraflop": round(total.operations / 1e12, 3)}


def problems_with(name: str, counts: dict, budget: dict) -> list[str]:
    problems = []
    for what, number in counts.items():
        allowed = budget.get(name, {}).get(what, 0)
        if number > allowed * (1 + ALLOWED):
            problems.append(f"{name}: {number:,} {what} in a step, {allowed:,} are allowed")
        elif number < allowed * (1 - ALLOWED):
            problems.append(f"{name}: {number:,} {what} in a step are less than the {allowed:,} allowed: write them down")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(WORKLOADS))
    parser.add_argument("--build", type=Path, default=ROOT / "build/cuda")
    parser.add_argument("--products", type=float, default=620, help="TFLOP/s of 16-bit products (default: 620)")
    parser.add_argument("--memory", type=float, default=2.8, help="TB/s (default: 2.8)")
    parser.add_argument("--check", type=Path)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    rates = {"products": arguments.products * 1e12, "memory": arguments.memory * 1e12}
    counts = {}
    for name in arguments.names or WORKLOADS:
        counts[name] = counts_of(show(name, rows_of(name, arguments.build, rates)))
    if arguments.write:
        before = json.loads(arguments.write.read_text()) if arguments.write.exists() else {}
        arguments.write.write_text(json.dumps(before | counts, indent=1) + "\n")
    budget = json.loads(arguments.check.read_text()) if arguments.check else {}
    problems = [one for name in counts for one in problems_with(name, counts[name], budget)] if arguments.check else []
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
