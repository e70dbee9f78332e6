"""The first runs on a GPU: a small GPT by ATen's kernels alone, the same with its steps as one CUDA graph, the same
with our kernels. Their losses must agree. Then a run with dropout, evaluations and saves is stopped and goes on.

usage: runs.py GPUTRAIN [--device cuda|cpu]
"""

import argparse
import tempfile
from pathlib import Path

from training import Run, say_result, train, write_job

SIZES = {"n_layer": 2, "n_head": 2, "n_embd": 64, "block_size": 32}
STEPS = 20
MOST_APART = 0.01  # relative, in bf16
GRAPH = "a step is one CUDA graph from here on"
WAYS = {  # name: settings, environment, whether a step must become a graph
    "aten": (["train.cuda_graphs=off"], {"GPUTRAIN_KERNELS": "aten"}, False),
    "aten in graphs": ([], {"GPUTRAIN_KERNELS": "aten"}, True),
    "own kernels in graphs": ([], {}, True),
}


def job_of(text: Path, device: str) -> dict:
    text.write_text("".join(f"the {i % 10} cats sat on the mat {i % 7} times;\n" for i in range(400)))
    return {"schema": 1, "name": "first", "device": device, "precision": "bf16",
            "model": {"type": "gpt", "config": SIZES | {"dropout": 0.0}},
            "data": {"train": {"path": str(text), "format": "text"}, "val": {"split": "10%"}},
            "train": {"max_steps": STEPS, "global_batch_size": 16, "max_grad_norm": 1.0},
            "optimizer": {"type": "adamw", "lr": 1e-3, "weight_decay": 0.1},
            "eval": {"interval": 10}, "checkpoint": {"interval": 10}, "log": {"interval": 1}}


def settings(*values: str) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def apart(one: list[float], other: list[float]) -> float:
    """The largest relative difference of two curves; infinite if they are not of equal length."""
    if len(one) != len(other) or not one:
        return float("inf")
    return max(abs(a - b) / abs(b) if a == a else float("inf") for a, b in zip(one, other))


def problems_of(name: str, run: Run, reference: Run | None, needs_graph: bool) -> list[str]:
    found = [f"{name}: {run.trouble}"] if run.trouble else []
    if not run.trouble and len(run.losses) != STEPS:
        found.append(f"{name}: {len(run.losses)} losses for {STEPS} steps")
    if not run.trouble and reference and (difference := apart(run.losses, reference.losses)) > MOST_APART:
        found.append(f"{name}: a loss differs from ATen's by {100 * difference:.2g} %")
    if not run.trouble and needs_graph and GRAPH not in run.log:
        found.append(f"{name}: no step became a CUDA graph")
    return found


def compare_ways(binary: str, job: Path, folder: Path, on_gpu: bool) -> tuple[list[str], list[str]]:
    """What to say, and problems."""
    said, problems, reference = [], [], None
    for name, (values, environment, needs_graph) in WAYS.items():
        run = train(binary, job, folder / name.replace(" ", "-"), *settings(*values), limit=60, **environment)
        problems += problems_of(name, run, reference, needs_graph and on_gpu)
        if run.losses:
            said.append(f"{name} {run.losses[0]:.4f} to {run.losses[-1]:.4f}")
        reference = reference or run
        say_result(", ".join(said), problems)
    return said, problems


def stop_and_go_on(binary: str, job: Path, folder: Path) -> tuple[list[str], list[str]]:
    given = settings("train.max_steps=100000", "model.config.dropout=0.1")
    stopped = train(binary, job, folder, *given, limit=60, stop_at="step    5/")
    if stopped.code != 143:
        return [], [f"stopped run: exit code {stopped.code} instead of 143: {stopped.trouble}"]
    step = stopped.summary["step"]
    given = settings(f"train.max_steps={step + STEPS}", "model.config.dropout=0.1")
    rest = train(binary, job, folder, "--accept", *given, limit=60)
    if rest.trouble:
        return [], [f"resumed run: {rest.trouble}"]
    if f"resume  step {step:,}" not in rest.output or rest.summary["step"] != step + STEPS:
        return [], [f"resumed run: does not go on from step {step}"]
    return [f"stopped at step {step} and resumed"], []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gputrain-first-") as name:
        folder = Path(name)
        job = write_job(folder, job_of(folder / "text.txt", arguments.device))
        said, problems = compare_ways(arguments.binary, job, folder, arguments.device == "cuda")
        more_said, more_problems = stop_and_go_on(arguments.binary, job, folder / "stopped")
    say_result(", ".join(said + more_said), problems + more_problems)
    return 1 if problems + more_problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
