"""Compiles every CUDA kernel for each architecture of the preset cuda and checks ptxas's report. Fails if a kernel
spills, has a stack frame or needs more registers than the line "// Registers: kernel budget, ..." of its file allows.

Exits 77 without nvcc.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Budgets are for multiprocessors that hold 2048 threads. Where it holds 1024 or 1536, this many registers cost nothing.
FREE = {"sm_75": 64, "sm_86": 40, "sm_89": 40, "sm_120": 40}
BUDGETS = re.compile(r"^// Registers: (.*)$", re.M)
KERNEL = re.compile(r"Compiling entry function '(\S+)' for")
NUMBERS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def architectures() -> list[str]:
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    built = next(preset["cacheVariables"]["CMAKE_CUDA_ARCHITECTURES"] for preset in presets if preset["name"] == "cuda")
    return [f"sm_{name.removesuffix('-real')}" for name in built.split(";")]


def budgets_of(source: Path) -> dict[str, int]:
    lines = ", ".join(BUDGETS.findall(source.read_text()))
    return {name: int(count) for name, count in (entry.split() for entry in lines.split(", ") if entry)}


def compile_for(nvcc: str, source: Path, architecture: str) -> str:
    command = [nvcc, "-std=c++17", "-O3", f"-arch={architecture}", "-Xptxas", "-v", "--cubin", "-o", os.devnull, source]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{source.name} does not compile for {architecture}:\n{result.stderr}")
    return result.stderr


def kernels_in(report: str):
    """(mangled name, registers, stack and spill bytes) of each kernel in ptxas's report."""
    name, trouble = "", 0
    for line in report.splitlines():
        if match := KERNEL.search(line):
            name, trouble = match[1], 0
        elif match := NUMBERS.search(line):
            trouble = sum(map(int, match.groups()))
        elif (match := REGISTERS.search(line)) and name:
            yield name, int(match[1]), trouble
            name = ""


def plain(mangled: str, known) -> str:
    """The kernel's name in the source; a mangled name contains it with its length in front."""
    found = [name for name in known if f"{len(name)}{name}" in mangled]
    return max(found, key=len, default="")


def offences(source: Path, architecture: str, report: str, verbose: bool):
    budgets = budgets_of(source)
    for mangled, registers, trouble in kernels_in(report):
        name = plain(mangled, budgets)
        where = f"{source.name} {architecture} {name or mangled}"
        if verbose:
            print(f"{registers:4} {where} {mangled.split('_kernelI')[-1] if '_kernelI' in mangled else ''}")
        if not name:
            yield f"{where}: no budget; add it to the line '// Registers: ...'"
        elif registers > (budget := max(budgets[name], FREE.get(architecture, 0))):
            yield f"{where}: {registers} registers, more than {budget}: {mangled}"
        if trouble:
            yield f"{where}: a stack frame or spills, {trouble} bytes: {mangled}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", metavar="FILE.cu", nargs="*", type=Path, help="default: all of src/ops/cuda")
    parser.add_argument("--arch", action="append", help="for instance sm_90; default: those of the preset")
    parser.add_argument("--verbose", action="store_true", help="print every kernel's registers")
    options = parser.parse_args()
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        print("skipped: no nvcc here to compile the kernels with")
        return 77
    sources = options.sources or sorted((ROOT / "src/ops/cuda").glob("*/*.cu"))
    jobs = [(source, architecture) for source in sources for architecture in options.arch or architectures()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = list(pool.map(lambda job: compile_for(nvcc, *job), jobs))
    found = [line for job, report in zip(jobs, reports) for line in offences(*job, report, options.verbose)]
    kernels = sum(len(list(kernels_in(report))) for report in reports)
    print("\n".join(found) if found else f"{kernels} kernels in {len(sources)} files within their budgets")
    return 1 if found or kernels == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
