"""Runs the test programs with the ctest label gpu on a machine with a GPU.
Writes tests.json and tests.log after each. A test that skips because it sees no GPU counts as failed. A killed program
runs again after all others, without the cases that have passed.

usage: run_tests.py FOLDER OUT [--budget SECONDS] [--limit SECONDS] [--continue]
  FOLDER      build/cuda, or what pack.sh made
  --budget    stop each program after this many seconds from now (default: 540)
  --limit     stop each program after this many seconds of its own (default: 200)
  --continue  skip programs and cases that have already passed in OUT
"""

import argparse
import json
import os
import re
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def programs_in(folder: Path) -> list[dict]:
    """Names, programs and environments, from pack.sh's list or from ctest."""
    if (folder / "tests.json").exists():
        packed = json.loads((folder / "tests.json").read_text())
        return [test | {"program": str(folder / "tests" / Path(test["program"]).name)} for test in packed]
    listing = subprocess.run(["ctest", "--test-dir", str(folder), "-L", "^gpu$", "--show-only=json-v1"], check=True, capture_output=True)
    found = []
    for test in json.loads(listing.stdout)["tests"]:
        if "command" not in test:
            raise SystemExit(f"{test['name']} is not built: cmake --build {folder} --target gpu_tests")
        environment = [entry for p in test["properties"] if p["name"] == "ENVIRONMENT" for entry in p["value"]]
        found.append({"name": test["name"], "program": test["command"][0], "environment": environment})
    return found


def run(test: dict, seconds: float, out: Path, done: list[str]) -> dict:
    """`done`: cases that have already passed."""
    started = time.time()
    limit = max(1, int(seconds))
    rest = [f"--gtest_filter=-{':'.join(done)}"] if done else []
    scratch = out / "running.log"  # a file: child processes of a killed program would keep a pipe open
    with scratch.open("wb") as log:
        code = subprocess.run(["timeout", "--signal=KILL", str(limit), test["program"], *rest], stdout=log, stderr=subprocess.STDOUT,
                              cwd=ROOT, env=os.environ | dict(entry.split("=", 1) for entry in test["environment"])).returncode
    took = time.time() - started
    output = scratch.read_text(errors="replace")
    scratch.unlink()
    with (out / "tests.log").open("a") as log:
        log.write(f"==== {test['name']}\n{output}\n")
    reasons = re.findall(r"Skipped\n(.*?)\n\[  SKIPPED \] (\S+)", output, re.S)
    cases = sorted({*done, *re.findall(r"^\[       OK \] ([\w/]+\.[\w/]+)", output, re.M)})
    begun, ended = (re.findall(pattern + r" ([\w/]+\.[\w/]+)", output) for pattern in (r"\[ RUN      \]", r"\[  (?:     OK|FAILED|SKIPPED) \]"))
    return {"name": test["name"], "code": f"killed after {took:.0f} s" if took >= limit else code, "seconds": round(took, 1),
            "passed": len(cases), "cases": cases, "failed": sorted(set(re.findall(r"\[  FAILED  \] ([\w/]+\.[\w/]+)", output))),
            "unfinished": [case for case in begun if case not in ended],
            "skipped": [f"{case}: {' '.join(reason.split())}" for reason, case in reasons],
            "saw_no_gpu": [case for reason, case in reasons if re.search(r"\bGPUs?\b", reason)]}


def is_bad(result: dict) -> bool:
    return result["code"] != 0 or bool(result["saw_no_gpu"]) or result["passed"] == 0


def write(out: Path, results: list[dict], not_reached: list[str]):
    partial = out / "tests.partial"
    partial.write_text(json.dumps({"tests": results, "not_reached": not_reached}, indent=2))
    os.replace(partial, out / "tests.json")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--budget", type=float, default=540)
    parser.add_argument("--limit", type=float, default=200)
    parser.add_argument("--continue", action="store_true", dest="goes_on")
    arguments = parser.parse_args()
    deadline = time.time() + arguments.budget
    tests, earlier = programs_in(arguments.folder), arguments.out / "tests.json"
    found = json.loads(earlier.read_text())["tests"] if arguments.goes_on and earlier.exists() else []
    results = {result["name"]: result for result in found}
    left = [test for test in tests if test["name"] not in results or is_bad(results[test["name"]])]
    left.sort(key=lambda test: test["name"] in results)  # killed or failed ones last: they may fail again
    if not arguments.goes_on:
        (arguments.out / "tests.log").unlink(missing_ok=True)
    while left and time.time() + 5 < deadline:
        test = left.pop(0)
        done = results.get(test["name"], {}).get("cases", [])
        last = results[test["name"]] = run(test, min(arguments.limit, deadline - time.time()), arguments.out, done)
        if str(last["code"]).startswith("killed") and len(last["cases"]) > len(done):
            left.append(test)
        write(arguments.out, list(results.values()), [test["name"] for test in left])
        print(f"{'FAILED' if is_bad(last) else 'ok':6} {last['name']:20} {last['passed']:4} passed {last['seconds']:6.1f} s  {last['code'] or ''} "
              f"{' '.join(last['failed'] + last['unfinished'] + last['saw_no_gpu'])}", flush=True)
    bad = [result for result in results.values() if is_bad(result)]
    print(f"gpu: {sum(r['passed'] for r in results.values())} passed, {sum(max(1, len(r['failed'])) for r in bad)} failed, "
          f"{sum(len(r['skipped']) for r in results.values())} skipped")
    if left:
        print("no time for: " + " ".join(test["name"] for test in left))
    return 1 if bad or left or not results else 0


if __name__ == "__main__":
    raise SystemExit(main())
