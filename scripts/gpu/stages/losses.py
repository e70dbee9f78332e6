"""Whether large models learn with our kernels in CUDA graphs as with ATen's alone: jobs of compare.py, from the same
weights and on the same data. Losses and gradient norms of their first steps must agree. The learning rate is small, so
that differences of rounding do not grow.

usage: losses.py GPUTRAIN WORKLOAD...
"""

import sys
import tempfile
from pathlib import Path

from runs import apart, settings
from training import say_result, train, write_job

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from compare import WORKLOADS  # noqa: E402

STEPS = 6  # a step is one CUDA graph from the fourth on
RATE = 0.01  # of the job's
MOST_APART, MOST_NORMS_APART = 0.01, 0.1  # relative, in 16 bits


def compare(name: str, binary: str, folder: Path) -> tuple[str, list[str]]:
    """What to say, and problems."""
    work = WORKLOADS[name]["job"]
    slow = work["optimizer"] | {"lr": RATE * work["optimizer"]["lr"]}
    job = write_job(folder, work | {"train": work["train"] | {"max_steps": STEPS}, "optimizer": slow,
                                    "checkpoint": {"interval": None}, "log": {"interval": 1}})
    aten = train(binary, job, folder / "aten", *settings("train.cuda_graphs=off"), limit=60, GPUTRAIN_KERNELS="aten")
    own = train(binary, job, folder / "own", limit=60)
    troubles = [f"{name}, {way}: {run.trouble}" for way, run in (("aten", aten), ("own", own)) if run.trouble]
    if troubles:
        return name, troubles
    losses, norms = apart(own.losses, aten.losses), apart(own.gradient_norms, aten.gradient_norms)
    says = f"{name}: losses {100 * losses:.2g} % apart, gradient norms {100 * norms:.2g} %"
    return says, [] if losses <= MOST_APART and norms <= MOST_NORMS_APART else [says]


def main() -> int:
    binary, *names = sys.argv[1:]
    said, problems = [], []
    with tempfile.TemporaryDirectory(prefix="gputrain-losses-") as folder:
        for name in names:
            says, found = compare(name, binary, Path(folder) / name)
            said.append(says)
            problems += found
            say_result(", ".join(said), problems)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
