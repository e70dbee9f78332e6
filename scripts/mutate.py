#!/usr/bin/env python3
"""Mutation testing: makes one wrong edit at a time in src/ or include/, builds, and says whether a test notices. A mutant that
survives is a line that no test checks. Rooms are drawn by their lines of code; the same seed draws the same places.

usage: scripts/mutate.py [--count 20] [--seed 1] [--rooms data,optim | --changed REV] [--preset release] [--json FILE] [--list]

A mutant costs one compilation and the tests: those of its room, those that include its header, and those of the program
that use its room; the first that fails ends it. The preset `dev` compiles least, `release` is what CI has built. Leave the
sources alone while it runs: each edit is undone with what the file held before, at the next start if it was killed.
Exits 0, but for --fail-below.
"""

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from wrong_edits import Place, changed_lines, draw, room_of

ROOT = Path(__file__).resolve().parent.parent

# The fast tests of the whole program that say most about a room, besides those in tests/ROOM.
PROGRAM_TESTS = {
    "core": "app", "config": "app", "device": "working_copy faults", "comm": "mesh straggler", "net": "live served",
    "hub": "fetch", "cloud": "preemption", "launch": "launcher", "tokenizers": "text_tasks generate", "chat": "generate",
    "data": "datasets image_tasks app", "ops": "working_copy ddp vit_parity", "nn": "parity encoder_parity adapter mesh",
    "models": "adapter segmentation peft config_parity", "generation": "eval_suite generate served", "datasets": "image_tasks segmentation",
    "records": "text_tasks preferences", "tasks": "text_tasks preferences segmentation image_tasks", "optim": "freeze narrow_master",
    "parallel": "ddp reduction mesh pipeline", "checkpoint": "average app", "monitor": "tracked_run live rules",
    "train": "micro_batch app preemption", "job": "extensions plan app", "setup": "freeze adapter plan app reduction",
    "trained": "average trained_folders", "resume": "average app preemption", "estimate": "plan micro_batch", "run": "faults live operation app",
    "inspect": "bench profile faults image_tasks preemption", "doctor": "doctor_verb", "predict": "images_out texts_out", "export": "images_out texts_out",
    "sweep": "sweep_verb", "cli": "images_out app"}

OUT_OF_TIME = "more than"  # an edit makes a test hang; or other programs take the processors, so it is tried without the edit

# A mutant may leave a variable unused: no error, also where CI makes one of each warning.
NO_ERRORS = '#pragma GCC diagnostic warning "-Wall"\n#pragma GCC diagnostic warning "-Wextra"\n#line 1\n'


def restore(root: Path, kept: Path) -> None:
    """Gives files back what they held before an edit. Their new time tells ninja to build them again."""
    for copy in [path for path in kept.rglob("*") if path.is_file()]:
        if copy.suffix != ".part":
            (root / copy.relative_to(kept)).write_bytes(copy.read_bytes())
        copy.unlink()


@contextlib.contextmanager
def edited(root: Path, kept: Path, place: Place):
    """Makes the edit for as long as the context lasts; keeps the original below `kept` meanwhile."""
    file, copy = root / place.file, kept / place.file
    copy.parent.mkdir(parents=True, exist_ok=True)
    part = copy.with_name(copy.name + ".part")
    part.write_bytes(file.read_bytes())
    os.replace(part, copy)
    source = file.read_text()
    try:
        file.write_text(NO_ERRORS + source[:place.start] + place.text + source[place.end:])
        yield
    finally:
        restore(root, kept)


def end_children() -> None:
    """Kills what this process has started, and what that has left behind, whose parent we are by PR_SET_CHILD_SUBREAPER."""
    def children():
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                    yield int(stat.parent.name)

    while found := list(children()):
        for child in found:
            os.kill(child, signal.SIGKILL)
        for child in found:
            os.waitpid(child, 0)


def run(command: list[str], limit: float, **options) -> tuple[int | None, float, str]:
    """Returns the exit code (None: out of time), the seconds and the output; nothing that was started is left."""
    with tempfile.TemporaryFile() as log:
        begin = time.monotonic()
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **options)
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            seconds = time.monotonic() - begin
            end_children()
        log.seek(0)
        return code, seconds, log.read().decode(errors="replace")


class Suite:
    """The fast tests of a build."""

    def __init__(self, root: Path, build: Path):
        self.root, self.build = root, build
        shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, capture_output=True, text=True, check=True).stdout
        self.properties, self.commands = {}, {}
        for test in json.loads(shown)["tests"]:
            of = {entry["name"]: entry["value"] for entry in test["properties"]}
            if "command" not in test:
                print(f"the test {test['name']} is not built, so it is left out", flush=True)
            elif "slow" not in of.get("LABELS", []):
                self.properties[test["name"]], self.commands[test["name"]] = of, test["command"]
        self.usual = {name: float(of.get("COST", 30)) for name, of in self.properties.items()}
        costs = build / "Testing/Temporary/CTestCostData.txt"
        for line in costs.read_text().splitlines() if costs.exists() else []:
            if (words := line.split()) and len(words) == 3 and words[0] in self.usual and int(words[1]) > 0:
                self.usual[words[0]] = float(words[2])
        self.sources = self.sources_of_tests()

    def sources_of_tests(self) -> dict[str, list[Path]]:
        found = {}
        for lists in (self.root / "tests").rglob("CMakeLists.txt"):
            for call in re.finditer(r"^(gputrain|program)_test\((\S+)\s*(?:NAME (\S+))?([^)]*)\)", lists.read_text(), re.MULTILINE):
                name = call[3] or call[2]
                found[name] = [lists.parent / word for word in call[4].split() if word.endswith(".cpp")]
        return found

    def near(self, file: str, seconds: float) -> list[str]:
        """Returns the tests that could notice an edit of a file, in this order: those of its room; those that include its
        header or have a word of its name; short ones of rooms that include it; those of the program that use its room.
        A test is left out with which they usually take longer than `seconds`."""
        header = re.compile(rf'^#include "(?:\S*/)?{room_of(file)}/(?:\S*/)?{Path(file).stem}\.hpp"', re.MULTILINE)

        def includes(path: Path) -> bool:
            return path.exists() and header.search(path.read_text()) is not None

        rooms = {room_of(str(path.relative_to(self.root))) for base in ("include", "src")
                 for path in (self.root / base).rglob("*.?pp") if includes(path)}
        groups = [self.of_room(room_of(file)),
                  [name for name, sources in self.sources.items() if name in Path(file).stem.split("_") or any(map(includes, sources))],
                  [name for room in rooms for name in self.of_room(room) if self.usual[name] < 20],
                  [*PROGRAM_TESTS.get(room_of(file), "app").split(), "pages"]]
        ordered = [name for group in groups for name in sorted(self.parts(group), key=self.usual.get)]
        chosen = []
        for name in dict.fromkeys(ordered):
            if sum(map(self.usual.get, [*chosen, name])) <= seconds:
                chosen.append(name)
        return chosen

    def parts(self, names: list[str]) -> list[str]:
        """Returns the tests of these names. A long program is several, NAME_1, NAME_2 and so on."""
        return [test for name in names for test in self.commands if re.fullmatch(rf"{re.escape(name)}(_\d+)?", test)]

    def of_room(self, room: str) -> list[str]:
        return [name for name, command in self.commands.items() if command[0].startswith(f"{self.build}/tests/{room}/")]

    def others(self, names: list[str]) -> list[str]:
        return sorted(set(self.commands) - set(names), key=self.usual.get)

    def targets(self, name: str) -> list[str]:
        """Returns what of the build a test starts."""
        words = [word for word in self.commands[name] if word.startswith(f"{self.build}/")]
        return [str(Path(word).relative_to(self.build)) for word in words] or ["bin/gputrain"]

    def run(self, name: str, case: str = "") -> tuple[str, float]:
        """Returns what failed, '' if nothing did, and the seconds that the test took. Runs a case of GoogleTest alone if given."""
        of = self.properties[name]
        settings = dict(entry.replace("=set:", "=", 1).split("=", 1)
                        for kind in ("ENVIRONMENT", "ENVIRONMENT_MODIFICATION") for entry in of.get(kind, []))
        if re.fullmatch(r"[\w/]+\.[\w/]+", case):
            settings |= {"GTEST_FILTER": case, "GTEST_TOTAL_SHARDS": "1", "GTEST_SHARD_INDEX": "0"}
        limit = (4 * self.usual[name] + 30) * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        code, seconds, output = run(self.commands[name], limit, cwd=of["WORKING_DIRECTORY"],
                                    env={**os.environ, "OMP_NUM_THREADS": "1", "GTEST_FAIL_FAST": "1", **settings})
        if code is None:
            return f"{OUT_OF_TIME} {limit:.0f} s", seconds
        failed = re.search(r"^\[  FAILED  \] ([\w/.]+)", output, re.MULTILINE) or re.search(r"^(?:FAIL|ERROR): (\S+)", output, re.MULTILINE)
        passed = code == 0 or code == of.get("SKIP_RETURN_CODE")
        return "" if passed else failed[1] if failed else f"exit code {code}", seconds


class Judge:
    """Tries mutants: edits, builds, tests, undoes."""

    def __init__(self, root: Path, build: Path, options: argparse.Namespace):
        self.root, self.kept, self.suite, self.options = root, build / "mutate", Suite(root, build), options
        self.trusted: set[tuple[str, str]] = set()  # tests with cases that are known to pass without an edit
        self.broken: set[str] = set()
        self.built: set[str] = set()

    def build(self, targets: list[str]) -> tuple[bool, float, str]:
        self.built.update(targets)
        code, seconds, output = run(["ninja", "-C", str(self.suite.build), f"-j{self.options.jobs}", *targets], 3600)
        return code == 0, seconds, output

    def build_unedited(self, targets: list[str]) -> None:
        built, _, output = self.build(targets)
        if not built:
            sys.exit(f"without an edit, the build fails:\n{output[-3000:]}")

    def objects(self, file: str) -> int:
        """Returns how many objects of the library an edit of the file compiles."""
        if file.endswith(".cpp"):
            return 1
        dump = subprocess.run(["ninja", "-t", "deps"], cwd=self.suite.build, capture_output=True, text=True).stdout
        return sum(block.startswith("src/") and f"/{file}\n" in block + "\n" for block in dump.split("\n\n"))

    def attempt(self, place: Place) -> dict:
        tests = self.suite.near(place.file, self.options.seconds)
        tests += self.suite.others(tests) if self.options.tests == "all" else []
        took = {"build_seconds": 0.0, "test_seconds": 0.0}
        with edited(self.root, self.kept, place):
            for name in [name for name in tests if name not in self.broken]:
                built, seconds, _ = self.build(self.suite.targets(name))
                took["build_seconds"] += seconds
                if not built:
                    return {"result": "did not compile", **took}
                failed, seconds = self.suite.run(name)
                took["test_seconds"] += seconds
                if failed:
                    return {"result": "caught", "by": name, "case": failed, **took}
        return {"result": "survived", **took}

    def judge(self, place: Place) -> dict:
        if self.objects(place.file) > self.options.objects:
            return {"result": "left out"}
        while True:
            result = self.attempt(place)
            if result["result"] != "caught":
                return result
            name, case = result["by"], result["case"]
            if (name, case) in self.trusted and not case.startswith(OUT_OF_TIME):
                return result
            self.build_unedited(self.suite.targets(name))
            if failed := self.suite.run(name, case)[0]:
                print(f"the test {name} fails without an edit ({failed}), so it is left out", flush=True)
                self.broken.add(name)
            else:
                self.trusted.add((name, case))
                return result


def write(file: Path, results: list[dict]) -> None:
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    os.replace(part, file)


def told(result: dict) -> str:
    if result["result"] == "caught":
        return f"caught by {result['by']} ({result['case']}), tests {result['test_seconds']:.0f} s, build {result['build_seconds']:.0f} s"
    if result["result"] == "survived":
        return f"SURVIVED, tests {result['test_seconds']:.0f} s, build {result['build_seconds']:.0f} s"
    return result["result"]


def summary(results: list[dict]) -> tuple[str, float]:
    """Returns the last lines of the report, and the percentage of mutants that were caught."""
    count = Counter(result["result"] for result in results)
    tried = count["caught"] + count["survived"]
    percent = 100 * count["caught"] / tried if tried else 100.0
    lines = [f"{one['file']}:{one['line']}: {one['kind']}\n  - {one['before']}\n  + {one['after']}" for one in results if one["result"] == "survived"]
    lines.append(f"{tried} mutants: {count['caught']} caught, {count['survived']} survived ({percent:.0f} % caught), "
                 f"{count['did not compile']} did not compile" + (f", {count['left out']} left out" if count["left out"] else ""))
    return "\n".join(lines), percent


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20, help="mutants that compile; others take the place of those that do not")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", type=lambda text: text.split(","), default=[])
    parser.add_argument("--changed", metavar="REV", help="only lines that differ from this revision")
    parser.add_argument("--preset", default="release")
    parser.add_argument("--tests", choices=["near", "all"], default="near", help="all: survivors meet the whole fast suite")
    parser.add_argument("--seconds", type=float, default=300, help="what the near tests of a mutant may usually take together")
    parser.add_argument("--json", type=Path, help="results, written as they come; a later call with the same file goes on")
    parser.add_argument("--list", action="store_true", help="print the places and build nothing")
    parser.add_argument("--objects", type=int, default=12, help="leave out headers that more objects of the library include")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--fail-below", type=float, default=0, metavar="PERCENT", help="exit 1 if fewer mutants are caught")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    build = ROOT / "build" / options.preset
    if not options.list:
        build.joinpath("mutate").mkdir(parents=True, exist_ok=True)
        lock = open(build / "mutate.lock", "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another mutate.py edits sources for {build}")
        restore(ROOT, build / "mutate")
    drawn = draw(ROOT, options.seed, options.rooms, changed_lines(ROOT, options.changed) if options.changed else None)
    if options.list:
        for place, _ in zip(drawn, range(options.count)):
            print(f"{place.file}:{place.line}: {place.kind}\n  - {place.before}\n  + {place.after}")
        return 0

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    with contextlib.suppress(OSError):  # an edit may allocate without end
        Path("/proc/self/oom_score_adj").write_text("1000")
    judge = Judge(ROOT, build, options)
    known = {one["key"]: one for one in (json.loads(options.json.read_text()) if options.json and options.json.exists() else [])
             if one["result"] != "survived" or options.tests in ("near", one["tests"])}
    results = []
    for place in drawn:
        tried = sum(one["result"] in ("caught", "survived") for one in results)
        if tried == options.count:
            break
        result = known.get(place.key()) or {"key": place.key(), **asdict(place), "tests": options.tests, **judge.judge(place)}
        known[place.key()] = result
        results.append(result)
        print(f"[{tried + 1}/{options.count}] {place.file}:{place.line}: {place.kind}: {told(result)}", flush=True)
        if options.json:
            write(options.json, list(known.values()))
    judge.build_unedited(sorted(judge.built))
    text, percent = summary(results)
    print(text)
    return 1 if percent < options.fail_below else 0


if __name__ == "__main__":
    sys.exit(main())
