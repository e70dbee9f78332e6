"""Runs every fast test program on a machine with a GPU, those that mention a GPU first, and writes tests.json and
tests.log. A test that skips because there is no GPU has not been run: here that fails.

usage: run_tests.py FOLDER OUT [--budget SECONDS]     (FOLDER: build/cuda, or what pack.sh made)
"""

import argparse
import json
import re
import subprocess
import time
from pathlib import Path


def programs_in(folder: Path) -> list[tuple[str, Path]]:
    """Names and programs, from pack.sh's list or from ctest."""
    if (folder / "tests.txt").exists():
        rows = [line.split("\t") for line in (folder / "tests.txt").read_text().splitlines()]
        return [(name, folder / "tests" / Path(program).name) for name, program in rows]
    listing = subprocess.run(["ctest", "--test-dir", str(folder), "--show-only=json-v1"], check=True, capture_output=True)
    found = []
    for test in json.loads(listing.stdout)["tests"]:
        labels = sum((p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"), [])
        if test["command"][0].endswith("_test") and "slow" not in labels:
            found.append((test["name"], Path(test["command"][0])))
    return found


def cases_in(program: Path) -> int:
    """How many of a program's cases are about GPUs."""
    listing = subprocess.run([str(program), "--gtest_list_tests"], capture_output=True, text=True).stdout
    return len(re.findall(r"cuda|gpu", listing, re.I))


def run(name: str, program: Path, seconds: float, log) -> dict:
    started = time.time()
    try:
        result = subprocess.run([str(program)], capture_output=True, text=True, errors="replace", timeout=seconds,
                                cwd=Path(__file__).resolve().parents[2])
        output, code = result.stdout + result.stderr, result.returncode
    except subprocess.TimeoutExpired as late:
        output, code = (late.stdout or b"").decode(errors="replace"), "time limit"
    log.write(f"==== {name}\n{output}\n")
    reasons = re.findall(r"Skipped\n(.*?)\n\[  SKIPPED \] (\S+)", output, re.S)
    without_gpu = [case for reason, case in reasons if re.search(r"\bGPUs?\b", reason)]
    ran = re.search(r"\[  PASSED  \] (\d+)", output)
    return {"name": name, "code": code, "seconds": round(time.time() - started, 1), "passed": int(ran[1]) if ran else 0,
            "failed": sorted(set(re.findall(r"\[  FAILED  \] (\w+\.\w+)", output))),
            "skipped": [f"{case}: {' '.join(reason.split())}" for reason, case in reasons], "saw_no_gpu": without_gpu}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--budget", type=float, default=540)
    arguments = parser.parse_args()
    deadline = time.time() + arguments.budget
    results, not_reached = [], []
    with (arguments.out / "tests.log").open("w") as log:
        for name, program in sorted(programs_in(arguments.folder), key=lambda entry: -cases_in(entry[1])):
            left = deadline - time.time()
            if left < 5:
                not_reached.append(name)
                continue
            results.append(run(name, program, left, log))
            (arguments.out / "tests.json").write_text(json.dumps({"tests": results, "not_reached": not_reached}, indent=2))
            last = results[-1]
            bad = last["code"] != 0 or last["saw_no_gpu"]
            print(f"{'FAILED' if bad else 'ok':6} {name:20} {last['passed']:4} passed {last['seconds']:6.1f} s "
                  f"{' '.join(last['failed'] + last['saw_no_gpu'])}", flush=True)
    bad = [entry for entry in results if entry["code"] != 0 or entry["saw_no_gpu"]]
    passed, failed = sum(e["passed"] for e in results), sum(max(1, len(e["failed"])) for e in bad)
    print(f"gpu: {passed} passed, {failed} failed, {sum(len(e['skipped']) for e in results)} skipped")
    if not_reached:
        print("no time for: " + " ".join(not_reached))
    return 1 if bad or not_reached or not results else 0


if __name__ == "__main__":
    raise SystemExit(main())
