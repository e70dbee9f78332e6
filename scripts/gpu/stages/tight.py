"""An evaluation in memory that just suffices for training: a run that trains for hours must not end in its first
evaluation. PyTorch's allocator is limited to a share of the GPU's memory, just above what training took.

usage: tight.py WORKLOAD GPUTRAIN
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from training import Run, say_result, train, write_job

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from compare import WORKLOADS  # noqa: E402

STEPS = 8
ENOUGH = (1.05, 1.1, 1.2, 1.4)  # times the peak of a run without a limit; fragments need some too


def job_of(name: str, evaluates: bool) -> dict:
    work = WORKLOADS[name]["job"]
    data = work["data"] | ({"val": {"samples": work["train"]["global_batch_size"]}} if evaluates else {})
    evaluation = {"eval": {"interval": STEPS // 2}} if evaluates else {}
    return work | evaluation | {"data": data, "train": work["train"] | {"max_steps": STEPS},
                                "checkpoint": {"interval": None}, "log": {"interval": 1}}


class Trials:
    def __init__(self, name: str, binary: str, total: int, folder: Path):
        self.name, self.binary, self.total, self.folder, self.number = name, binary, total, folder, 0

    def train(self, evaluates: bool, bytes_allowed: float | None = None) -> Run:
        self.number += 1
        job = job_of(self.name, evaluates)
        if bytes_allowed:
            job["alloc_conf"] = f"per_process_memory_fraction:{min(1, bytes_allowed / self.total):.6f}"
        at = self.folder / str(self.number)
        return train(self.binary, write_job(at / "job", job), at / "run")


def judge(trials: Trials) -> tuple[str, list[str]]:
    """What to say, and problems."""
    free = trials.train(evaluates=False)
    if free.trouble:
        return "", [f"without a limit: {free.trouble}"]
    peak = free.summary["peak_memory_bytes"]
    if not trials.train(False, 0.5 * peak).code:
        return "", ["a limit of half the memory has no effect"]
    for share in ENOUGH:
        if not trials.train(False, share * peak).code:
            run = trials.train(True, share * peak)
            where = f"{share * peak / 2**30:.1f} GiB, {share:g} times the peak of training"
            return where, [f"with evaluations: {run.trouble}"] if run.trouble else []
    return "", [f"training takes more than {ENOUGH[-1]:g} times its peak of {peak / 2**30:.1f} GiB"]


def total_bytes() -> int:
    asked = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(asked, check=True, capture_output=True, text=True).stdout) << 20


def main() -> int:
    name, binary = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="gputrain-tight-") as folder:
        says, problems = judge(Trials(name, binary, total_bytes(), Path(folder)))
    say_result(says, problems)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
