"""Runs the test programs with the ctest label gpu on a machine with a GPU.
Writes tests.json after each, and what they print to the log at once. A test that skips because it sees no GPU counts as
failed. A killed program runs again after all others, without the cases that have passed. Programs choose their kernels
anew, beside GPUTRAIN_KERNEL_CHOICES in of_tests/, so that a kill leaves no mark where runs look.

usage: run_tests.py FOLDER OUT [--only NAME...] [--log FILE] [--budget SECONDS] [--limit SECONDS] [--continue]
  FOLDER      build/cuda, or what pack.sh made
  --only      these programs, in this order (default: all)
  --log       where to append what they print (default: OUT/tests.log)
  --budget    stop each program after this many seconds from now (default: 540)
  --limit     stop each program after this many seconds of its own (default: 200)
  --continue  skip programs and cases that have already passed in OUT
Exits with 1 if a program failed, with 75 if only time was short.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from stages.training import say_result

UNFINISHED = 75
ROOT = Path(__file__).resolve().parents[2]


def programs_in(folder: Path) -> list[dict]:
    """Names, programs and environments, from pack.sh's list or from ctest."""
    if (folder / "tests.json").exists():
        packed = json.loads((folder / "tests.json").read_text())
        return [test | {"program": str(folder / "tests" / Path(test["program"]).name)} for test in packed]
    listing = subprocess.run(["ctest", "--test-dir", str(folder), "-L", "^gpu$", "--show-only=json-v1"], check=True,
                             capture_output=True)
    found = []
    for test in json.loads(listing.stdout)["tests"]:
        if "command" not in test:
            raise SystemExit(f"{test['name']} is not built: cmake --build {folder} --target gpu_tests")
        environment = [entry for p in test["properties"] if p["name"] == "ENVIRONMENT" for entry in p["value"]]
        found.append({"name": test["name"], "program": test["command"][0], "environment": environment})
    return found


def run(test: dict, seconds: float, log: Path, done: list[str]) -> dict:
    """`done`: cases that have already passed."""
    started = time.time()
    limit = max(1, int(seconds))
    rest = [f"--gtest_filter=-{':'.join(done)}"] if done else []
    with log.open("ab") as out:  # a file: child processes of a killed program would keep a pipe open
        out.write(f"==== {test['name']}\n".encode())
        out.flush()
        begin = out.tell()
        code = subprocess.run(["timeout", "--signal=KILL", str(limit), test["program"], *rest], stdout=out,
                              stderr=subprocess.STDOUT, cwd=ROOT, env=environment_of(test)).returncode
    took = time.time() - started
    output = log.read_bytes()[begin:].decode(errors="replace")
    ended = f"killed after {took:.0f} s" if took >= limit else code
    return {"name": test["name"], "code": ended, "seconds": round(took, 1)} | read(output, done)


def environment_of(test: dict) -> dict[str, str]:
    environment = dict(os.environ)
    if choices := environment.get("GPUTRAIN_KERNEL_CHOICES"):
        of_tests = Path(choices).parent / "of_tests/kernel_choices.jsonl"
        # After two kills gputrain would take ATen, and the test would test that. cuDNN's plans beside the file stay.
        of_tests.unlink(missing_ok=True)
        shutil.rmtree(f"{of_tests}.trials", ignore_errors=True)
        environment["GPUTRAIN_KERNEL_CHOICES"] = str(of_tests)
    return environment | dict(entry.split("=", 1) for entry in test["environment"])


def read(output: str, done: list[str]) -> dict:
    """What became of the cases."""
    reasons = re.findall(r"Skipped\n(.*?)\n\[  SKIPPED \] (\S+)", output, re.S)
    cases = sorted({*done, *re.findall(r"^\[       OK \] ([\w/]+\.[\w/]+)", output, re.M)})
    begun, ended = (
        re.findall(pattern + r" ([\w/]+\.[\w/]+)", output)
        for pattern in (r"\[ RUN      \]", r"\[ +(?:OK|FAILED|SKIPPED) +\]")
    )
    return {"passed": len(cases), "cases": cases,
            "failed": sorted(set(re.findall(r"\[  FAILED  \] ([\w/]+\.[\w/]+)", output))),
            "unfinished": [case for case in begun if case not in ended],
            "skipped": [f"{case}: {' '.join(reason.split())}" for reason, case in reasons],
            "saw_no_gpu": [case for reason, case in reasons if re.search(r"\bGPUs?\b", reason)]}


NONE = {"code": "not run", "saw_no_gpu": [], "passed": 0}


def is_bad(result: dict) -> bool:
    return result["code"] != 0 or bool(result["saw_no_gpu"]) or result["passed"] == 0


def write(out: Path, results: list[dict], not_reached: list[str]):
    partial = out / "tests.partial"
    partial.write_text(json.dumps({"tests": results, "not_reached": not_reached}, indent=2))
    os.replace(partial, out / "tests.json")


class Suite:
    """The wanted programs; results also hold those of earlier calls for others."""

    def __init__(self, arguments):
        self.arguments, self.deadline = arguments, time.time() + arguments.budget
        self.log = arguments.log or arguments.out / "tests.log"
        earlier = arguments.out / "tests.json"
        found = json.loads(earlier.read_text())["tests"] if arguments.goes_on and earlier.exists() else []
        self.results = {result["name"]: result for result in found}
        there = {test["name"]: test for test in programs_in(arguments.folder)}
        self.tests = [there[name] for name in arguments.only or there if name in there]
        self.left = [test for test in self.tests if is_bad(self.results.get(test["name"], NONE))]
        self.left.sort(key=lambda test: test["name"] in self.results)  # killed or failed ones last: they may fail again

    def run_all(self):
        if not self.arguments.goes_on and not self.arguments.log:
            self.log.unlink(missing_ok=True)
        while self.left and time.time() + 5 < self.deadline:
            test = self.left.pop(0)
            done = self.results.get(test["name"], {}).get("cases", [])
            seconds = min(self.arguments.limit, self.deadline - time.time())
            last = self.results[test["name"]] = run(test, seconds, self.log, done)
            time_was_up = seconds < self.arguments.limit
            if str(last["code"]).startswith("killed") and (time_was_up or len(last["cases"]) > len(done)):
                self.left.append(test)
            write(self.arguments.out, list(self.results.values()), [test["name"] for test in self.left])
            outcome = "FAILED" if is_bad(last) else "ok"
            print(f"{outcome:6} {last['name']:20} {last['passed']:4} passed {last['seconds']:6.1f} s  {troubles(last)}",
                  flush=True)

    def report(self) -> int:
        results = [self.results[test["name"]] for test in self.tests if test["name"] in self.results]
        unfinished = [test["name"] for test in self.left]
        bad = [result for result in results if is_bad(result) and (result["failed"] or result["name"] not in unfinished)]
        failed, skipped = sum(max(1, len(r["failed"])) for r in bad), sum(len(r["skipped"]) for r in results)
        says = f"{sum(r['passed'] for r in results)} passed, {failed} failed, {skipped} skipped"
        says += "".join(f", no time for {name}" for name in unfinished)
        say_result(says, [f"{result['name']}: {troubles(result)}" for result in bad])
        print(f"gpu: {says}")
        return 1 if bad or not self.tests else UNFINISHED if self.left else 0


def troubles(result: dict) -> str:
    code = [str(result["code"])] if result["code"] else []
    return " ".join(code + result["failed"] + result["unfinished"] + result["saw_no_gpu"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--budget", type=float, default=540)
    parser.add_argument("--limit", type=float, default=200)
    parser.add_argument("--continue", action="store_true", dest="goes_on")
    suite = Suite(parser.parse_args())
    suite.run_all()
    return suite.report()


if __name__ == "__main__":
    raise SystemExit(main())
