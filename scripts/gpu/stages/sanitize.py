"""Runs the tests of our own kernels under NVIDIA's compute-sanitizer. Exits 77 where there is none.

usage: sanitize.py memcheck|racecheck TESTS SECONDS
  TESTS    the folder in which run_tests.py finds tests
  SECONDS  ends there; what was checked until then counts
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from training import say_result

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from run_tests import ROOT, environment_of, programs_in  # noqa: E402

# Tests whose kernels are mostly cuBLAS's and cuDNN's: thousands of launches that are not ours.
OF_LIBRARIES = "*Convolution*:*Attention*:*Dense*:*FeedForward*:*Products*:*HeadGradient*"


def tool() -> str | None:
    name = "compute-sanitizer"
    return shutil.which(name) or shutil.which(name, path=f"/usr/local/cuda/bin:/usr/local/cuda/{name}")


def judge(output: str, ended: bool) -> tuple[str, list[str]]:
    cases = len(re.findall(r"^\[       OK \]", output, re.M))
    problems = re.findall(r"^\[  FAILED  \] (\w+\.\w+) \(", output, re.M)
    kinds = re.findall(r"^========= (?!ERROR SUMMARY|COMPUTE-SANITIZER|RACECHECK SUMMARY|\s)(.+)$", output, re.M)
    found = list(dict.fromkeys(kinds))
    summary = re.search(r"^========= (?:ERROR|RACECHECK) SUMMARY: (.*)$", output, re.M)
    if ended and not summary:
        found.append("ended without a summary")
    says = f"{summary[1] if summary else f'{len(found)} kinds of error'} in {cases} tests"
    says += "" if ended else ", then time was up"
    return says, problems + found[:10]


def main() -> int:
    kind, folder, seconds = sys.argv[1:]
    if not (sanitizer := tool()):
        say_result("there is no compute-sanitizer here")
        return 77
    test = next(test for test in programs_in(Path(folder)) if test["name"] == "gpu_ops")
    # Without the allocator's cache each tensor is an allocation, so that the sanitizer sees where it ends.
    environment = environment_of(test) | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    command = ["timeout", "--kill-after=5", seconds, sanitizer, "--tool", kind, "--report-api-errors", "no",
               test["program"], f"--gtest_filter=-{OF_LIBRARIES}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          cwd=ROOT, env=environment) as child:
        lines = []
        for line in child.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    says, problems = judge("".join(lines), ended=child.returncode not in (124, 137))
    say_result(says, problems)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
