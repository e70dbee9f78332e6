"""A machine with a GPU and no network, made of fake programs: a checkout with pack.sh's output, a torch that has only a
name and a version, an nvidia-smi, a compute-sanitizer."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBE = """#!/bin/sh
[ $# -gt 0 ] || { echo device memory nccl; exit 0; }
for section; do
  [ $section != memory ] || { echo 'memory {"what": "copy"}'; kill -SEGV $$; }
  echo "$section {\\"ms\\": 1}"
  echo "sections {\\"name\\": \\"$section\\", \\"seconds\\": 1}"
done
"""
# Trains without training. DEVIATION: what our own kernels add to a loss. OUT_OF_MEMORY: evaluations do not fit.
GPUTRAIN = """#!/usr/bin/env python3
import json, os, pathlib, signal, sys, time
choices = pathlib.Path(os.environ["GPUTRAIN_KERNEL_CHOICES"])
(choices.parent / "cudnn_plans").mkdir(parents=True, exist_ok=True)
(choices.parent / "cudnn_plans/1").write_text("plan\\\\n")
with choices.open("a") as file:
    file.write('{"operator": "norm 8x8", "own": true, "own_ms": 1, "aten_ms": 2, "error": 0.001}\\\\n')
    file.write('{"operator": "pool 9x9", "own": false, "own_ms": 3, "aten_ms": 2, "error": 0.001}\\\\n')
if sys.argv[1] == "bench":
    print("warning: the loader is slow", file=sys.stderr)
    print(json.dumps({"rows": [{"failure": None, "each": {"seconds": [1.0, 2.0]}, "first_loss": 2, "last_loss": 1,
                                "peak_memory_bytes": 5}]}))
    sys.exit()
if sys.argv[1] == "generate":
    for _ in open(sys.argv[sys.argv.index("--prompts") + 1]):
        print(json.dumps({"tokens": [1, 2, 3]}), flush=True)
    sys.exit()
job = dict((key, json.loads(value)) for key, _, value in (line.partition(": ") for line in open(sys.argv[2])))
folder = pathlib.Path(sys.argv[sys.argv.index("--output-dir") + 1])
given = dict(word.split("=", 1) for word in sys.argv if "=" in word)
steps = int(given.get("train.max_steps", job["train"]["max_steps"]))
memory = float(job.get("alloc_conf", "x:1").split(":")[1])
if memory < 0.4 or memory < 1 and "eval" in job and "OUT_OF_MEMORY" in os.environ:
    print("error: out of memory")
    sys.exit(6)
earlier = json.loads((folder / "summary.json").read_text())["step"] if (folder / "summary.json").exists() else 0
if earlier:
    print(f"resume  step {earlier} from there")
code = 0
if steps > 1000:
    signal.signal(signal.SIGTERM, lambda *_: None)
    print("step    5/100,000 loss 2", flush=True)
    signal.pause()
    steps, code = 7, 143
own = 0 if os.environ.get("GPUTRAIN_KERNELS") == "aten" else float(os.environ.get("DEVIATION", 0))
(folder / "logs").mkdir(parents=True, exist_ok=True)
graph = "" if given.get("train.cuda_graphs") == "off" else "a step is one CUDA graph from here on"
(folder / "logs/rank_0000.log").write_text(graph)
metrics = [{"kind": "train", "train/loss": 3 - step / 100 + own, "train/grad_norm": 1 + 9 * own} for step in range(steps)]
(folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\\\\n" for entry in metrics))
summary = {"step": steps, "first_step_seconds": 12.5, "peak_memory_bytes": 500 << 20}
(folder / "summary.json").write_text(json.dumps(summary))
sys.exit(code)
""".replace("\\\\n", "\\n")
NVIDIA_SMI = """#!/bin/sh
case "$*" in
  *=memory.total*) echo 1000 ;;
  *=name,driver*) echo "NVIDIA H100, ${DRIVER:-580.1}, 81559 MiB" ;;
  *--query*) exit 9 ;;
  *) echo 'GPU 0' ;;
esac
"""
SANITIZER = """#!/bin/sh
echo '========= COMPUTE-SANITIZER'
while [ "${1%_test}" = "$1" ]; do shift; done
"$@"
[ -z "$BAD_KERNEL" ] || echo '========= Invalid __global__ write of size 4 bytes'
echo '========= ERROR SUMMARY: 0 errors'
"""
PASSES = """#!/bin/sh
echo "$NEEDED" >>ran
case $LD_LIBRARY_PATH in *:/of/the/driver) ;; *) echo "the driver is not found"; exit 1 ;; esac
printf '[ RUN      ] A.B\\n[       OK ] A.B (1 ms)\\n'
"""
HANGS = """#!/bin/sh
[ ! -e "$0.mended" ] || { printf '[ RUN      ] C.D\\n[       OK ] C.D (1 ms)\\n'; exit 0; }
printf '[ RUN      ] C.D\\n'
sleep 300
"""


class Machine:
    def __init__(self, folder: str, tests: dict[str, str]):
        self.folder = pathlib.Path(folder)
        self.root, self.out = self.folder / "checkout", self.folder / "out"
        shutil.copytree(ROOT / "scripts", self.root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        site = self.folder / "site"
        self.write(site / "torch/__init__.py", "raise ImportError('this torch is a name')")
        metadata = "Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0+cu130\n"
        self.write(site / "torch-2.11.0.dist-info/METADATA", metadata)
        self.write(self.folder / "bin/nvidia-smi", NVIDIA_SMI)
        (self.folder / "bin/python3").symlink_to(sys.executable)  # not a wrapper that takes time to choose one
        self.write(self.folder / "bin/compute-sanitizer", SANITIZER)
        self.packed = self.folder / "packed"
        files = {"bin/gputrain": GPUTRAIN, "bin/gpu_probe": PROBE, "source_folder": folder + "/built/here"}
        for name, text in (files | {f"tests/{name}_test": text for name, text in tests.items()}).items():
            self.write(self.packed / name, text)
        listed = [{"name": name, "program": f"/at/{name}_test", "environment": ["NEEDED=yes"]} for name in tests]
        self.write(self.packed / "tests.json", json.dumps(listed))
        self.environment = self.path_first(self.folder / "bin") | {
            "PYTHONPATH": str(site),
            "TINY_WORKLOADS": "yes",
            "OUT": str(self.out),
            "LD_LIBRARY_PATH": "/of/the/driver",
        }

    @staticmethod
    def path_first(folder: pathlib.Path) -> dict[str, str]:
        return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}

    @staticmethod
    def write(path: pathlib.Path, text: str):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def pack(self):
        """As pack.sh does, without the compression."""
        (self.root / ".carry").mkdir(exist_ok=True)
        with tarfile.open(self.root / ".carry/packed.tar.xz", "w") as archive:
            archive.add(self.packed, ".")

    def start(self, script: str, *arguments, **environment: str) -> subprocess.Popen:
        self.pack()
        command = [self.root / "scripts/gpu" / script, *arguments]
        return subprocess.Popen(command, env=self.environment | environment, start_new_session=True, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, script: str, *arguments, **environment: str) -> tuple[int, str]:
        process = self.start(script, *arguments, **environment)
        said = process.communicate(timeout=60)[0]
        return process.returncode, said

    def results(self, name: str):
        path = self.out / name
        return json.loads(path.read_text()) if name.endswith("json") else path.read_text()

    def stages(self) -> dict[str, str]:
        """The outcome of each stage."""
        return {name: entry["outcome"] for name, entry in self.results("first.json")["stages"].items()}

    def kill_all(self, process: subprocess.Popen):
        """As when the machine is taken away: a script, and what it has started under `timeout`, outermost first."""
        os.killpg(process.pid, signal.SIGKILL)
        commands = {
            int(path.parent.name): path.read_bytes()
            for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
            if path.exists()
        }
        for group in sorted(
            pid
            for pid, command in commands.items()
            if command.startswith(b"timeout") and str(self.root).encode() in command
        ):
            os.killpg(group, signal.SIGKILL)
        process.communicate()
