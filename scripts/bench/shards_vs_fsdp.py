"""Compares `parallel.shard: parameters` on ranks of this machine's CPUs with PyTorch's fully_shard, and both with what
keeps more on a rank: shard: gradients, shard: none, and DistributedDataParallel. All train the same small Llama from the
same weights on the same batches, in fp32 with AdamW and clipping. Programs run in turns; figures are medians over rounds.
With --tensor, compares `parallel.tensor` of all ranks with torch.distributed.tensor.parallel in the same way.

usage: shards_vs_fsdp.py --binary build/release/bin/gputrain [--tensor] [--ranks N] [--threads N] [--rounds N] [--steps N]
                         [--batch N] [--length N] [--small] [--only NAME...] [--parity] [--output FILE.json]

PyTorch's side is LlamaForCausalLM of transformers over Gloo: fully_shard on each layer and on the whole, which gathers
again in the backward pass (reshard_after_forward). With --tensor: parallelize_module and loss_parallel, column-wise q, k, v,
gate, up and head, row-wise o, down and embedding; the inputs of attention and MLP are prepared once, so that a layer has two
all-reduces in each pass. Ranks are started alike on both sides, without a launcher.
step: the time between the ends of two steps. memory: the peak of the resident set from the start of the process to its
end, of the largest rank, libraries, loading of the weights and the last save included; PyTorch saves nothing. How much is
libraries, --small shows. own: the same as rank 0 of gputrain reports it. start: from the start of the processes to the
end of the first step. With --parity, the losses of both sides are shown, and the exit code is 1 if they differ.

Programs get this one's environment: MALLOC_MMAP_THRESHOLD_=1048576 makes glibc give back what fully_shard frees, which
lowers its peak.
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path

from cpu_vs_pytorch import flow
from measure import Process, alternate, machine

SIZES = {"hidden_size": 384, "intermediate_size": 1152, "num_hidden_layers": 10, "num_attention_heads": 6,
         "num_key_value_heads": 2, "vocab_size": 4096}  # 20 million
SMALL = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 256}
LR, BETAS, DECAY, MAX_NORM, SEED = 1e-3, [0.9, 0.95], 0.1, 1.0, 1337
WARM_UP, TOLERANCE = 3, 1e-4
WORD = 2**64 - 1


@dataclass(frozen=True)
class Programs:
    """Names, and how each shares the work. The first ones of both sides are compared."""
    ours: dict[str, str]
    theirs: dict[str, str]

    def pair(self) -> tuple[str, str]:
        return next(iter(self.ours)), next(iter(self.theirs))


SHARDS = Programs({"gputrain parameters": "parameters", "gputrain gradients": "gradients", "gputrain none": "none"},
                  {"PyTorch fully_shard": "fsdp", "PyTorch DDP": "ddp"})
TENSOR = Programs({"gputrain tensor": "tensor"}, {"PyTorch tensor": "tensor"})


def mix(a: int, b: int) -> int:
    z = (a + 0x9E3779B97F4A7C15 * (b + 1)) & WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & WORD
    return z ^ (z >> 31)


def sample_at(position: int, samples: int) -> int:
    """The sample that gputrain's loader reads at this position of the first epoch: src/data/loading/order.cpp."""
    bits = max(6, (samples - 1).bit_length())
    low_bits, key = bits // 2, mix(mix(SEED, 1), 0)
    low_mask, high_mask = (1 << low_bits) - 1, (1 << bits - low_bits) - 1
    while True:
        low, high = position & low_mask, position >> low_bits
        for turn in range(0, 8, 2):
            high ^= mix(mix(key, turn), low) & high_mask
            low ^= mix(mix(key, turn + 1), high) & low_mask
        position = high << low_bits | low
        if position < samples:
            return position


def offset_of_windows(length: int) -> int:
    """Where the windows of the first epoch begin: below() of src/core/random.cpp, from the first numbers of Philox."""
    key, halves = mix(SEED, 2), 2**32 - 1
    low_key, high_key, words = key & halves, key >> 32, [0, 0, 0, 0]
    for turn in range(10):
        a, b = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [b >> 32 ^ words[1] ^ (low_key + turn * 0x9E3779B9 & halves), b & halves,
                 a >> 32 ^ words[3] ^ (high_key + turn * 0xBB67AE85 & halves), a & halves]
    return (words[0] << 32 | words[1]) % length


def write_data(folder: Path, vocabulary: int, steps: int, batch: int, length: int):
    """Tokens for one epoch, of which gputrain makes batches, and for PyTorch the batches: [steps, 2, batch, length]."""
    draw, around = random.Random(1), steps * batch * length
    tokens = array("H", (int(vocabulary ** draw.random()) - 1 for _ in range(around + 1)))  # low ones are frequent
    (folder / "tokens.bin").write_bytes(tokens.tobytes())
    batches, offset = array("q"), offset_of_windows(length)
    for step in range(steps):
        firsts = [offset + sample_at(step * batch + row, steps * batch) * length for row in range(batch)]
        for shift in (0, 1):
            batches.extend(tokens[(first + place) % around + shift] for first in firsts for place in range(length))
    (folder / "batches.bin").write_bytes(batches.tobytes())


def write_base(folder: str, sizes: dict):
    """In a process of its own: the peak memory of a child begins with what its parent has."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=False))
    model.save_pretrained(folder)
    print(sum(parameter.numel() for parameter in model.parameters()))


def job(folder: Path, kind: str, options) -> str:
    shares_layers = kind == "tensor"  # then each rank has all texts
    data = {"path": str(folder / "tokens.bin"), "format": "tokens", "vocab_size": options.sizes["vocab_size"]}
    train = {"max_steps": options.steps, "global_batch_size": options.batch,
             "micro_batch_size": options.batch // (1 if shares_layers else options.ranks), "max_grad_norm": MAX_NORM}
    return "\n".join([
        "schema: 1",
        "name: shards",
        f"seed: {SEED}",
        "device: cpu",
        "precision: fp32",
        f"model: {flow({'type': 'gpt', 'pretrained': str(folder / 'base')})}",
        f"data: {flow({'train': data})}",
        f"train: {flow(train)}",
        f"optimizer: {flow({'type': 'adamw', 'lr': LR, 'betas': BETAS, 'weight_decay': DECAY})}",
        "lr_scheduler: {type: constant}",
        f"parallel: {flow({'tensor': options.ranks} if shares_layers else {'shard': kind})}",
        "checkpoint: {interval: null}",
        "log: {interval: 1}",
    ])


def share_layers(model, mesh):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module

    whole = {"hidden_states": Replicate()}
    layer = {
        "self_attn": PrepareModuleInput(input_kwarg_layouts=whole, desired_input_kwarg_layouts=whole),
        "mlp": PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),)),
    }
    layer |= {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}
    layer |= {f"mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")}
    layer |= {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
    plan = {f"model.layers.*.{name}": style for name, style in layer.items()} | {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    return parallelize_module(model, mesh, plan, src_data_rank=None)  # each rank has read the weights: sends none


def make_parallel(model, kind: str, ranks: int):
    from torch.distributed import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    if kind == "ddp":
        return DistributedDataParallel(model, gradient_as_bucket_view=True)
    mesh = init_device_mesh("cpu", (ranks,))
    if kind == "tensor":
        return share_layers(model, mesh)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    return fully_shard(model, mesh=mesh, reshard_after_forward=True)


def train_with_pytorch(kind: str, folder: str, batch: int, length: int):
    """One rank. The first one prints the end of each step, and the mean loss over all ranks."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.distributed.tensor.experimental import implicit_replication
    from torch.distributed.tensor.parallel import loss_parallel
    from transformers import LlamaForCausalLM

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    batches = torch.from_file(f"{folder}/batches.bin", size=os.path.getsize(f"{folder}/batches.bin") // 8, dtype=torch.long)
    readers, reader = (1, 0) if kind == "tensor" else (ranks, rank)  # ranks with texts of their own
    rows = slice(reader * (batch // readers), (reader + 1) * (batch // readers))
    model = LlamaForCausalLM.from_pretrained(f"{folder}/base", dtype=torch.float32)
    model = make_parallel(model.train(), kind, ranks)
    optimizer = torch.optim.AdamW([
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": DECAY},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ], lr=LR, betas=tuple(BETAS), fused=True)
    for step, (inputs, targets) in enumerate(batches.view(-1, 2, batch, length)[:, :, rows], 1):
        with loss_parallel():  # if layers are shared
            logits = model(input_ids=inputs, use_cache=False).logits
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            loss.backward()
        with implicit_replication():  # then norms are on every rank, as plain tensors
            torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach() / readers
        if readers > 1:
            dist.all_reduce(mean)
        if rank == 0:
            print(json.dumps({"step": step, "time": time.time(), "loss": mean.item()}), flush=True)
    dist.barrier()  # a rank that leaves early can end another in its last collective
    dist.destroy_process_group()


@dataclass
class Run:
    step_seconds: float  # median after warm-up
    first_step_seconds: float
    peak_bytes: list[int]  # of each rank
    own_peak_bytes: int  # as gputrain says; 0 for PyTorch
    losses: list[float]

    def __str__(self) -> str:
        return (f"{self.step_seconds:.3f} s a step, first after {self.first_step_seconds:.1f} s, "
                f"peak {max(self.peak_bytes) / 2**20:,.0f} MiB, last loss {self.losses[-1]:.5f}")


def run_ranks(command: list[str], options, place: Path) -> tuple[float, list[str], list[int]]:
    """Runs the command as every rank. Gives when it began, what the first rank printed, and the peak memory of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"OMP_NUM_THREADS": str(options.threads), "WORLD_SIZE": str(options.ranks), "HF_HUB_OFFLINE": "1",
              "LOCAL_WORLD_SIZE": str(options.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [Process(command, shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, place / f"log-{rank}")
             for rank in range(options.ranks)]
    printed = [list(rank.lines()) for rank in ranks]
    return ranks[0].started, printed[0], [rank.finish() for rank in ranks]


def result_of(began: float, peaks: list[int], steps: list[tuple[float, float]], own: int = 0) -> Run:
    ends = [end for end, _ in steps]
    return Run(statistics.median(b - a for a, b in zip(ends[WARM_UP - 1:], ends[WARM_UP:])), ends[0] - began, peaks, own,
               [loss for _, loss in steps])


def run_gputrain(folder: Path, kind: str, options, place: Path) -> Run:
    place.mkdir()
    (place / "job.yaml").write_text(job(folder, kind, options))
    began, _, peaks = run_ranks([options.binary, "run", str(place / "job.yaml"), "--output-dir", str(place / "run")],
                                options, place)
    records = [json.loads(line) for line in (place / "run/metrics.jsonl").read_text().splitlines()]
    return result_of(began, peaks, [(one["time"], one["train/loss"]) for one in records if one["kind"] == "train"],
                     json.loads((place / "run/summary.json").read_text())["peak_memory_bytes"])


def run_pytorch(folder: Path, kind: str, options, place: Path) -> Run:
    place.mkdir()
    began, lines, peaks = run_ranks([sys.executable, __file__, "--rank", kind, str(folder), str(options.batch),
                                     str(options.length)], options, place)
    return result_of(began, peaks, [(one["time"], one["loss"]) for one in map(json.loads, lines)])


def difference(ours: list[float], theirs: list[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))


def ratio_of_steps(runs: dict[str, list[Run]], name: str, to: str) -> float | None:
    if to not in runs:
        return None
    return statistics.median(a.step_seconds / b.step_seconds for a, b in zip(runs[name], runs[to]))


def table_of(runs: dict[str, list[Run]], theirs: str) -> dict[str, dict]:
    median = lambda name, value: statistics.median(value(run) for run in runs[name])
    return {name: {
        "step_seconds": median(name, lambda run: run.step_seconds),
        "of_pytorch": ratio_of_steps(runs, name, theirs),
        "of_none": ratio_of_steps(runs, name, "gputrain none"),
        "peak_bytes": median(name, lambda run: max(run.peak_bytes)),
        "own_peak_bytes": median(name, lambda run: run.own_peak_bytes) or None,
        "first_step_seconds": median(name, lambda run: run.first_step_seconds),
        "loss_difference": difference(runs[name][0].losses, runs[theirs][0].losses) if theirs in runs else None,
    } for name in runs}


def print_table(table: dict[str, dict], theirs: str):
    shown = lambda value, form: "-" if value is None else format(value, form)
    mebibytes = lambda value: "-" if value is None else f"{value / 2**20:,.0f} MiB"
    print(f"\n{'':20}{'step':>9}{'/ ' + theirs.split()[1]:>15}{'/ none':>8}{'memory':>11}{'own':>11}{'start':>9}{'loss':>9}")
    for name, row in table.items():
        print(f"{name:20}{row['step_seconds']:7.3f} s{shown(row['of_pytorch'], '.2f'):>15}"
              f"{shown(row['of_none'], '.2f'):>8}{mebibytes(row['peak_bytes']):>11}"
              f"{mebibytes(row['own_peak_bytes']):>11}{row['first_step_seconds']:7.1f} s"
              f"{shown(row['loss_difference'], '.1e'):>9}")
    print(f"loss: largest relative difference from that of {theirs} in a step")


def check_parity(runs: dict[str, list[Run]], pair: tuple[str, str]) -> float:
    ours, theirs = (runs[name][0].losses for name in pair)
    print("\nstep" + "".join(f"  {name:>19}" for name in pair))
    for step, (a, b) in enumerate(zip(ours, theirs), 1):
        print(f"{step:4}  {a:19.7f}  {b:19.7f}")
    worst = difference(ours, theirs)
    print(f"largest relative difference {worst:.1e}, allowed {TOLERANCE:.0e}")
    return worst


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--tensor", action="store_true", help="ranks share layers, not texts")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=15, help=f"of each run; the first {WARM_UP} are warm-up")
    parser.add_argument("--batch", type=int, default=4, help="texts in a step, over all ranks")
    parser.add_argument("--length", type=int, default=128, help="tokens in a text")
    parser.add_argument("--small", action="store_true", help="a tiny model, to try this script")
    parser.add_argument("--only", nargs="+", help="contenders to run", metavar="NAME")
    parser.add_argument("--parity", action="store_true", help=f"show the losses; exit code 1 if they differ by {TOLERANCE:.0e}")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.batch % options.ranks or options.steps <= WARM_UP:
        parser.error(f"--batch must be a multiple of --ranks, --steps above {WARM_UP}")
    options.programs = TENSOR if options.tensor else SHARDS
    names = options.programs.ours | options.programs.theirs
    if options.only and not set(options.only) <= set(names):
        parser.error(f"--only takes {', '.join(map(repr, names))}")
    if options.parity and options.only and not set(options.programs.pair()) <= set(options.only):
        parser.error(f"--parity needs {' and '.join(map(repr, options.programs.pair()))}")
    options.sizes = (SMALL if options.small else SIZES) | {"max_position_embeddings": options.length}
    return options


def compare(options) -> tuple[int, dict[str, list[Run]]]:
    with tempfile.TemporaryDirectory(prefix="gputrain-bench-") as name:
        folder = Path(name)
        write_data(folder, options.sizes["vocab_size"], options.steps, options.batch, options.length)
        made = subprocess.run([sys.executable, __file__, "--base", str(folder / "base"), json.dumps(options.sizes)],
                              check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        parameters = int(made.stdout)
        contenders = {name: lambda turn, kind=kind: run_gputrain(folder, kind, options, folder / f"gputrain-{kind}-{turn}")
                      for name, kind in options.programs.ours.items()}
        contenders |= {name: lambda turn, kind=kind: run_pytorch(folder, kind, options, folder / f"pytorch-{kind}-{turn}")
                       for name, kind in options.programs.theirs.items()}
        chosen = {name: run for name, run in contenders.items() if not options.only or name in options.only}
        return parameters, alternate(chosen, options.rounds, lambda line: print(line, flush=True))


def main():
    if sys.argv[1:2] == ["--rank"]:
        kind, folder, batch, length = sys.argv[2:]
        return train_with_pytorch(kind, folder, int(batch), int(length))
    if sys.argv[1:2] == ["--base"]:
        return write_base(sys.argv[2], json.loads(sys.argv[3]))
    options = read_options()
    parameters, runs = compare(options)
    pair = options.programs.pair()
    table = table_of(runs, pair[1])
    report = {"machine": machine() | {"cores": len(os.sched_getaffinity(0))}, "parameters": parameters,
              "options": {name: getattr(options, name) for name in ("ranks", "threads", "rounds", "steps", "batch", "length")},
              "results": table, "runs": {name: [asdict(run) for run in each] for name, each in runs.items()}}
    print(f"\n{report['machine']['cpu']}, torch {report['machine']['torch']}, {options.ranks} ranks of {options.threads} "
          f"thread{'s' * (options.threads > 1)}, {parameters / 1e6:.1f}M parameters, fp32, {options.batch} texts of "
          f"{options.length} tokens; load averages {', '.join(f'{load:.1f}' for load in os.getloadavg())}", end="")
    print_table(table, pair[1])
    worst = check_parity(runs, pair) if options.parity else 0
    if options.output:
        options.output.write_text(json.dumps(report, indent=2))
    if not worst <= TOLERANCE:  # also if it is not a number
        raise SystemExit(1)


if __name__ == "__main__":
    main()
